#!/bin/sh
# Makes a Debian package from a wheelhouse (wheelhouse.sh):
#     sh deploy/deb.sh WHEELHOUSE [DIR]        DIR/hushgrid_VERSION_ARCH.deb [.]
# It puts the wheelhouse into /usr/lib/hushgrid, from where install.sh installs, updates and removes the program: the
# package is configured once its release has passed the health gate. The same wheelhouse gives the same bytes.
set -eu

{ [ $# -eq 1 ] || [ $# -eq 2 ]; } && [ -e "$1/machine" ] || { sed -n '3s/^#     /usage: /p' "$0" >&2; exit 2; }
house=$(cd "$1" && pwd)
mkdir -p "${2:-.}"
target=$(cd "${2:-.}" && pwd)
read -r machine python <"$house/machine"
case $machine in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) echo "found a wheelhouse for $machine" >&2; exit 2 ;; esac
# A pre-release is older than its release.
version=$(sed -n 's/^hushgrid==\([^ ]*\) .*/\1/p' "$house/requirements-rows.txt" | sed -E 's/\.?(a|b|rc|dev)([0-9])/~\1\2/')
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$house" log -1 --format=%ct 2>/dev/null || echo 946684800)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
lib=$work/usr/lib/hushgrid doc=$work/usr/share/doc/hushgrid
umask 022
mkdir -p "$lib" "$doc" "$work/usr/bin" "$work/DEBIAN"
cp -R "$house/wheels" "$house/deploy" "$house/machine" "$house"/requirements-*.txt "$lib"
ln -s /opt/hushgrid/bin/hushgrid "$work/usr/bin/hushgrid"
echo "Apache-2.0, as in /usr/share/common-licenses/Apache-2.0; each wheel in /usr/lib/hushgrid/wheels has its own." >"$doc/copyright"

cat >"$work/DEBIAN/control" <<END
Package: hushgrid
Version: $version
Architecture: $arch
Maintainer: the hushgrid developers <hushgrid@localhost>
Installed-Size: $(find "$work/usr" -type f -printf '%s\n' | awk '{kib += int(($1 + 1023) / 1024)} END {print kib}')
Depends: passwd, python3 (>= $python), python3 (<< ${python%.*}.$((${python#*.} + 1))), python3-venv
Suggests: mosquitto (>= 2.0.11)
Section: net
Priority: optional
Description: decentralised optimisation over MQTT with differential privacy
 The program, and units for a device (hushgrid-node@NAME) and a coordinator (hushgrid-coordinator). None is enabled.
END

# script NAME ACTION COMMAND: what dpkg runs; without a chroot (--force-script-chrootless) it says in DPKG_ROOT where.
script() {
    printf '%s\n' '#!/bin/sh' 'set -eu' 'export HUSHGRID_ROOT="${DPKG_ROOT:-}"' "[ \"\$1\" != $2 ] || $3" >"$work/DEBIAN/$1"
}
engine='sh "$HUSHGRID_ROOT/usr/lib/hushgrid/deploy/install.sh"'
script postinst configure "$engine package"
script prerm remove "$engine uninstall"
script postrm purge 'echo "hushgrid: a purge deletes no ledger, no mark and no configuration" >&2'
chmod -R u=rwX,go=rX "$work"
chmod 0755 "$work"/DEBIAN/p*
find "$work" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
# Wheels are packed already.
dpkg-deb --root-owner-group -Znone --build "$work" "$target/hushgrid_${version}_$arch.deb" >/dev/null
echo "$target/hushgrid_${version}_$arch.deb; next, on the machine: apt install ./hushgrid_${version}_$arch.deb"
