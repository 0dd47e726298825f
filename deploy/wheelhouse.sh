#!/bin/sh
# Makes the files from which install.sh installs without a network, from a checkout:
#     sh deploy/wheelhouse.sh DIR [ARCH PYTHON]        ARCH: x86_64 or aarch64; PYTHON: 3.11 to 3.13 [this machine's]
# DIR gets wheels/, one list of them with hashes for each kind of device (rows, zones, model), and a copy of this folder.
# Only built packages are taken: the device needs no compiler. The same checkout and packages give the same lists.
set -eu

[ $# -eq 1 ] || [ $# -eq 3 ] || { echo "usage: sh deploy/wheelhouse.sh DIR [ARCH PYTHON]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
dir=$1 arch=${2:-$(uname -m)}
python=${3:-$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')}
case $arch in x86_64 | aarch64) ;; *) echo "ARCH: found $arch, expected x86_64 or aarch64" >&2; exit 2 ;; esac
case $python in 3.1[1-3]) ;; *) echo "PYTHON: found $python, expected 3.11, 3.12 or 3.13" >&2; exit 2 ;; esac
[ -e "$here/../pyproject.toml" ] || { echo "$here: expected to stand in a checkout" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$dir" "$work/source" "$work/made" "$work/dist"
dir=$(cd "$dir" && pwd)

# The program's own wheel, from a copy: a build leaves files in its tree, and would pack what an earlier one left there.
tar -C "$here/.." --exclude='./.*' --exclude=./tests --exclude=./docs --exclude=./build --exclude=./dist --exclude=./runs \
    --exclude=./site --exclude=./wheelhouse --exclude='*.egg-info' --exclude=__pycache__ -cf - . | tar -C "$work/source" -xf -
SOURCE_DATE_EPOCH=$(git -C "$here" log -1 --format=%ct 2>/dev/null || echo 946684800)
export SOURCE_DATE_EPOCH
python3 -m pip wheel --quiet --disable-pip-version-check --no-deps -w "$work/dist" "$work/source"
own=$(ls "$work"/dist/hushgrid-*.whl)

mkdir "$work/wheels"
short=$(echo "$python" | tr -d .)
for extra in rows zones model; do
    mkdir "$work/made/$extra"
    # masked: a device makes its own key (`hushgrid fleet request`), and may take part in sums that only all together show.
    wanted="${own}[masked]"
    [ "$extra" = rows ] || wanted="${own}[$extra,masked]"
    # glibc 2.28 and later: Debian 10 is older than the oldest Python taken here.
    python3 -m pip download --quiet --disable-pip-version-check --only-binary=:all: --find-links "$work/wheels" \
        --implementation cp --python-version "$python" --abi "cp$short" --abi abi3 --abi none \
        --platform "manylinux_2_28_$arch" --platform "manylinux_2_27_$arch" --platform "manylinux_2_24_$arch" \
        --platform "manylinux_2_17_$arch" --platform "manylinux2014_$arch" --dest "$work/made/$extra" "$wanted"
    cp -n "$work/made/$extra"/*.whl "$work/wheels"
    (
        cd "$work/made/$extra"
        for wheel in *.whl; do
            name=${wheel%%-*} rest=${wheel#*-}
            echo "$name==${rest%%-*} --hash=sha256:$(sha256sum "$wheel" | cut -d' ' -f1)"
        done | LC_ALL=C sort
    ) >"$work/requirements-$extra.txt"
done

rm -rf "$dir/wheels" "$dir/deploy"
mv "$work/wheels" "$work"/requirements-*.txt "$dir"
mkdir "$dir/deploy"
tar -C "$here" --exclude=__init__.py --exclude=py.typed --exclude=__pycache__ -cf - . | tar -C "$dir/deploy" -xf -
echo "$arch $python" >"$dir/machine"
echo "$dir: $(ls "$dir/wheels" | wc -l) wheels for $arch, Python $python; next, on the device: sh $(basename "$dir")/deploy/install.sh"
