#!/bin/sh
# Installs, updates and removes one role on a Debian machine, as root:
#     sh deploy/install.sh node|coordinator       from a wheelhouse, without a network or a compiler; from a checkout, with both
#     sh deploy/install.sh broker [MEMBERS]       mosquitto for a fleet of so many devices
#     sh deploy/install.sh back                   the release before, again
#     sh deploy/install.sh uninstall              programs and units; configuration, ledgers and marks stay
# It may be run again: configuration that is there is left alone. A release stands in /opt/hushgrid/releases, and `current`
# leads to the one in use. A new one takes over only if it accepts every configuration that the old one accepts, and if every
# unit that runs is READY with it and stays so; otherwise the old one goes on. docs/years.md says more.
#
# HUSHGRID_EXTRA  of a node: rows, zones, or model, which builds a zone's model itself [model]
# HUSHGRID_WAIT   seconds for a unit to be READY [120]    HUSHGRID_SETTLE  and to stay so [10]
# HUSHGRID_ROOT   another place than /, for images: nothing is started there
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=${HUSHGRID_ROOT:-}
opt=$root/opt/hushgrid etc=$root/etc/hushgrid units=$root/etc/systemd/system
ready=${HUSHGRID_WAIT:-120} settle=${HUSHGRID_SETTLE:-10}
work=
trap '[ -z "$work" ] || rm -rf "$work"' EXIT

say() { echo "install.sh: $*" >&2; }
fail() { say "$*"; exit 1; }
usage() { sed -n '3,6s/^#     /  /p' "$0" | sed '1s/^  /usage: /' >&2; exit 2; }
# own MODE GROUP FILE... TARGET: copied, as root's and the group's; in an image the group does not exist yet.
own() { mode=$1 group=$2; shift 2; if [ -n "$root" ]; then install -m "$mode" "$@"; else install -m "$mode" -o root -g "$group" "$@"; fi; }
keep() { [ -e "$2" ] || own "$3" "$4" "$1" "$2"; }
booted() { [ -z "$root" ] && [ -d /run/systemd/system ]; }
daemon() { if [ -n "$root" ] || ! command -v runuser >/dev/null; then "$@"; else runuser -u hushgrid -- "$@"; fi; }
current() { readlink "$opt/current" 2>/dev/null | sed 's#^releases/##'; }
switch() { ln -sfn "releases/$1" "$opt/current.new" && mv -T "$opt/current.new" "$opt/current"; sync; }
running() { systemctl list-units --plain --no-legend --state=active,activating,reloading 'hushgrid-*.service' | cut -d' ' -f1; }
configurations() { for file in "$etc"/coordinator.yaml "$etc"/nodes/*.yaml; do [ ! -e "$file" ] || echo "$file"; done; }

# --- a release, from the wheels and the list with their hashes ---

rank() { case $1 in rows) echo 0 ;; zones) echo 1 ;; model) echo 2 ;; *) return 1 ;; esac; }

# make_release EXTRA: its name in $release; nothing is done if it is there whole.
make_release() {
    extra=$1
    rank "$extra" >/dev/null || { say "HUSHGRID_EXTRA: found $extra, expected rows, zones or model"; exit 2; }
    # A machine with two roles has the packages of both.
    has=$(cat "$opt/current/extra" 2>/dev/null || echo rows)
    [ "$(rank "$has")" -le "$(rank "$extra")" ] || extra=$has
    house=$here/..
    if [ ! -d "$house/wheels" ]; then
        [ -e "$house/pyproject.toml" ] || fail "found neither wheels nor a checkout around $here: use a wheelhouse (make wheelhouse)"
        work=$(mktemp -d)
        sh "$here/wheelhouse.sh" "$work" >/dev/null
        house=$work
    fi
    machine="$(uname -m) $(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    [ "$(cat "$house/machine")" = "$machine" ] || fail "found a wheelhouse for $(cat "$house/machine"), expected $machine"
    list=$house/requirements-$extra.txt
    version=$(sed -n 's/^hushgrid==\([^ ]*\) .*/\1/p' "$list")
    release=$version-$(sha256sum "$list" | cut -c1-12)
    [ ! -e "$opt/releases/$release/complete" ] || return 0
    rm -rf "$opt/releases/$release" # half made: the power went
    mkdir -p "$opt/releases"
    if ! { python3 -m venv "$opt/releases/$release" &&
        "$opt/releases/$release/bin/pip" install --quiet --disable-pip-version-check --no-index --no-cache-dir \
            --find-links "$house/wheels" --only-binary=:all: --require-hashes -r "$list" &&
        "$opt/releases/$release/bin/hushgrid" --version >/dev/null; }; then
        rm -rf "$opt/releases/$release"
        fail "$release cannot be installed: nothing is changed"
    fi
    echo "$extra" >"$opt/releases/$release/extra"
    sync
    touch "$opt/releases/$release/complete"
}

# --- from one release to another ---

# The configurations that $1 accepts.
accepted() { configurations | while read -r file; do ! daemon "$opt/$1/bin/hushgrid" check "$file" >/dev/null 2>&1 || echo "$file"; done; }

# The new release must accept what the old one accepts.
checks() {
    for file in $(accepted current); do
        why=$(daemon "$opt/releases/$1/bin/hushgrid" check "$file" 2>&1 >/dev/null) || { say "$1 does not accept $file: $(echo "$why" | tail -n 1)"; return 1; }
    done
}

# place UNIT: the ledger of a unit without its ending, and its mark, as its configuration says.
place() {
    case $1 in
    hushgrid-node@*) name=${1#hushgrid-node@} name=${name%.service} kind=device file=$etc/nodes/$name.yaml ;;
    *) kind=coordinator file=$etc/coordinator.yaml ;;
    esac
    "$opt/current/bin/python" -c "import sys
from hushgrid.node.config.$kind import load_$kind
c = load_$kind(sys.argv[1])
print(f'{c.state}/{getattr(c, \"node\", \"coordinator\")}', getattr(c, 'mark', None) or '')" "$file"
}

# A new release may bring a ledger to a newer format, which the old one refuses: a copy stands beside it meanwhile.
copies() {
    for unit in $1; do
        place "$unit" 2>/dev/null >"$work/place" || continue
        read -r ledger mark <"$work/place" || true
        mkdir -p "$work/$unit"
        for file in "$ledger".* $mark; do [ ! -f "$file" ] || cp -p "$file" "$work/$unit/"; done
    done
}

# back_to_copy UNIT: the ledger as it was, if its mark says that nothing was spent since. Else the spends would be forgotten.
back_to_copy() {
    place "$1" 2>/dev/null >"$work/place" || return 1
    read -r ledger mark <"$work/place" || true
    [ -e "$work/$1/$(basename "$ledger").ledger" ] || return 1
    [ -z "$mark" ] || cmp -s "$mark" "$work/$1/$(basename "$mark")" || { say "$1 has spent since: its ledger stays as it is, which $2 cannot read"; return 1; }
    case $1 in hushgrid-node@*) [ -n "$mark" ] || { say "$1 has no mark that says whether it has spent since: its ledger stays as it is"; return 1; } ;; esac
    for file in "$ledger".*; do [ "$file" = "$mark" ] || [ ! -f "$file" ] || rm "$file"; done
    for file in "$work/$1/$(basename "$ledger")".*; do [ "$(basename "$file")" = "$(basename "${mark:-.}")" ] || cp -p "$file" "$(dirname "$ledger")/"; done
}

# up UNIT: starts it, and waits for READY.
up() { systemctl reset-failed "$1" 2>/dev/null || true; timeout "$ready" systemctl start "$1" 2>/dev/null; }
steady() { [ "$(systemctl is-active "$1")" = active ] && [ "$(systemctl show -P NRestarts "$1")" = 0 ]; }

# healthy UNITS: all are READY with what `current` is now, and stay so. Says which is not, with its last line.
healthy() {
    for unit in $1; do up "$unit" || { unwell "$unit"; return 1; }; done
    sleep "$settle"
    for unit in $1; do steady "$unit" || { unwell "$unit"; return 1; }; done
}
unwell() { say "$1 is not READY with $(current): $(journalctl -u "$1" _TRANSPORT=stdout -n 1 -o cat 2>/dev/null)"; }

# take RELEASE: it becomes `current`, or the one before goes on.
take() {
    before=$(current)
    if [ -z "$before" ] || [ "$before" = "$1" ]; then
        switch "$1"
        return 0
    fi
    checks "$1" || fail "$before goes on"
    booted || { switch "$1"; return 0; }
    [ -n "$work" ] || work=$(mktemp -d)
    chmod 0700 "$work"
    active=$(running)
    [ -z "$active" ] || systemctl stop $active
    copies "$active"
    switch "$1"
    if healthy "$active"; then return 0; fi
    systemctl stop $active
    switch "$before"
    for unit in $active; do
        up "$unit" || { systemctl stop "$unit"; back_to_copy "$unit" "$before" && up "$unit"; } || say "$unit does not start with $before either: journalctl -u $unit"
    done
    fail "$1 is not taken, $before goes on"
}

# Of the releases the one in use and the one before stay.
tidy() {
    [ "$1" = "$(current)" ] || [ -z "$1" ] || echo "$1" >"$opt/before"
    for path in "$opt"/releases/*; do
        name=$(basename "$path")
        [ "$name" = "$(current)" ] || [ "$name" = "$(cat "$opt/before" 2>/dev/null)" ] || rm -rf "$path"
    done
}

# The program was one environment in /opt/hushgrid itself.
former() {
    [ -f "$opt/pyvenv.cfg" ] || return 0
    rm -rf "$opt/bin" "$opt/lib" "$opt/lib64" "$opt/include" "$opt/share" "$opt/pyvenv.cfg"
    ln -sfn current/bin "$opt/bin"
    ! booted || for unit in $(running); do systemctl restart "$unit"; done
}

program() {
    # A lasting system user: it owns the ledgers.
    [ -n "$root" ] || id hushgrid >/dev/null 2>&1 || useradd --system --home-dir /var/lib/hushgrid --shell /usr/sbin/nologin hushgrid
    before=$(current)
    make_release "$1"
    install_units=$2
    mkdir -p "$units"
    own 0644 root "$here/$install_units" "$units/"
    ! booted || systemctl daemon-reload
    take "$release"
    former
    ln -sfn current/bin "$opt/bin"
    tidy "$before"
}

# Configuration is root's to write and the daemon's to read; loads and keys are nobody else's.
folder() { if [ -n "$root" ]; then install -d -m 0750 "$@"; else install -d -m 0750 -o root -g hushgrid "$@"; fi; }

case ${1:-} in
node)
    program "${HUSHGRID_EXTRA:-model}" hushgrid-node@.service
    folder "$etc" "$etc/certs" "$etc/nodes"
    say "$(current) is installed. Next: /etc/hushgrid/nodes/NAME.yaml, then: systemctl enable --now hushgrid-node@NAME"
    ;;
coordinator)
    program zones hushgrid-coordinator.service
    folder "$etc" "$etc/certs"
    keep "$here/coordinator.yaml" "$etc/coordinator.yaml" 0640 hushgrid
    keep "$here/scenario.yaml" "$etc/scenario.yaml" 0640 hushgrid
    say "$(current) is installed. Next: /etc/hushgrid/coordinator.yaml, then: systemctl enable --now hushgrid-coordinator"
    ;;
broker)
    members=${2:-28}
    case $members in '' | *[!0-9]*) say "MEMBERS: found $members, expected how many devices the fleet has"; exit 2 ;; esac
    [ -n "$root" ] || command -v /usr/sbin/mosquitto >/dev/null || apt-get install --yes mosquitto
    # Every device, the coordinator and a watcher; each once more, because a broker that has not noticed a broken connection
    # holds it beside the new one; and a few to look with. A connection is one file; 128 are for the broker's own.
    connections=$((2 * (members + 2) + 4))
    files=$((connections + 128 > 1024 ? connections + 128 : 1024))
    mkdir -p "$root/etc/mosquitto" "$units/mosquitto.service.d"
    sed "s/^max_connections .*/max_connections $connections/" "$here/mosquitto.conf" >"$root/etc/mosquitto/mosquitto.conf.new"
    if ! cmp -s "$root/etc/mosquitto/mosquitto.conf.new" "$root/etc/mosquitto/mosquitto.conf"; then
        # mosquitto.conf is replaced whole; what was there stays beside it.
        install --backup=numbered -m 0644 "$root/etc/mosquitto/mosquitto.conf.new" "$root/etc/mosquitto/mosquitto.conf"
    fi
    rm "$root/etc/mosquitto/mosquitto.conf.new"
    printf '%s\n' "# Written by install.sh, for $members devices." "[Service]" "LimitNOFILE=$files" >"$units/mosquitto.service.d/hushgrid.conf"
    ! booted || systemctl daemon-reload
    keep "$here/acl" "$root/etc/mosquitto/hushgrid.acl" 0640 mosquitto
    say "mosquitto takes $connections connections, for $members devices. Next: certificates in /etc/mosquitto/certs, then: systemctl restart mosquitto"
    ;;
back)
    before=$(current)
    to=$(cat "$opt/before" 2>/dev/null) && [ -e "$opt/releases/$to/complete" ] || fail "found no release before $before"
    take "$to"
    tidy "$before"
    say "$to is in use again"
    ;;
uninstall)
    if booted; then
        all=$(systemctl list-units --all --plain --no-legend 'hushgrid-*.service' | cut -d' ' -f1)
        [ -z "$all" ] || systemctl disable --now $all 2>/dev/null
    fi
    rm -rf "$opt" "$units/hushgrid-node@.service" "$units/hushgrid-coordinator.service" "$root/var/cache/hushgrid"
    ! booted || systemctl daemon-reload
    say "programs and units are gone. Kept: $etc, $root/var/lib/hushgrid, $root/var/lib/hushgrid-marks, the user hushgrid, the broker"
    ;;
*) usage ;;
esac
