#!/bin/sh
# Installs, updates and removes one role on a Debian machine, as root:
#     sh deploy/install.sh node|coordinator       from a wheelhouse, without a network or a compiler; from a checkout, with both
#     sh deploy/install.sh broker [MEMBERS]       mosquitto for a fleet of so many devices
#     sh deploy/install.sh package                program and units of node and coordinator: what a Debian package does (deb.sh)
#     sh deploy/install.sh back [accept]          the release before, again; accept: also if it cannot read what was spent since
#     sh deploy/install.sh uninstall              programs and units; configuration, ledgers and marks stay
# It may be run again: configuration that is there is left alone. A release stands in /opt/hushgrid/releases, and `current`
# leads to the one in use. A new one takes over only if it accepts every configuration and reads every ledger that the old one
# does, and if every unit that runs is READY with it, stays so, and reaches the broker if it did before; otherwise the old one
# goes on. docs/years.md says more.
#
# HUSHGRID_EXTRA  of a node: rows, zones, or model, which builds a zone's model itself [model]
# HUSHGRID_WAIT   seconds for a unit to be READY [120]    HUSHGRID_SETTLE  and to stay so [10]
# HUSHGRID_ROOT   another place than /, for images: nothing is started there
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=${HUSHGRID_ROOT:-}
opt=$root/opt/hushgrid etc=$root/etc/hushgrid units=$root/etc/systemd/system
ready=${HUSHGRID_WAIT:-120} settle=${HUSHGRID_SETTLE:-10}
work= accept=
trap '[ -z "$work" ] || rm -rf "$work"' EXIT

say() { echo "install.sh: $*" >&2; }
fail() { say "$*"; exit 1; }
usage() { sed -n '3,7s/^#     /  /p' "$0" | sed '1s/^  /usage: /' >&2; exit 2; }
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

# ledger_of CONFIGURATION: where it is.
ledger_of() {
    case $1 in */coordinator.yaml) kind=coordinator ;; *) kind=device ;; esac
    "$opt/current/bin/python" -c "import pathlib, sys
from hushgrid.node.config.$kind import load_$kind as load
c = load(pathlib.Path(sys.argv[1]))
print(pathlib.Path(c.state) / (getattr(c, 'node', 'coordinator') + '.ledger'))" "$1"
}

# figure RELEASE KEY FILE: what RELEASE reads in a ledger: a copy of it, so also beside the unit that holds it.
figure() {
    daemon "$opt/releases/$1/bin/hushgrid" ledger show --json "$3" >"$work/shown" || return 1
    sed -n "s/^  \"$2\": \([0-9]*\),\$/\1/p" "$work/shown" | grep .
}

# reads RELEASE NOW CONFIGURATION: whether RELEASE can go on from the ledger that NOW has. 0: it reads it. 1: it reads the copy
# that was made when the ledger got the format it has, and that copy lacks no spend, or its owner counts those as spent
# (`accept`). 2, in one line: neither.
reads() {
    ledger=$(ledger_of "$3" 2>"$work/why") || { say "the ledger of $3 is not looked at: $(tail -n 1 "$work/why")"; return 0; }
    [ -e "$ledger" ] || return 0
    all=$(figure "$2" mark "$ledger" 2>"$work/why") || { say "$2 cannot read $ledger: $(tail -n 1 "$work/why"): it stays"; return 0; }
    figure "$1" mark "$ledger" >/dev/null 2>"$work/why" && return 0
    why="$1 cannot read $ledger: $(tail -n 1 "$work/why" | sed 's/.*: found/found/; s/: a ledger .*//')"
    copy=$(figure "$1" mark "$ledger-before" 2>/dev/null) || { say "$why; there is no copy that it reads"; return 2; }
    [ -n "$accept" ] || [ "$copy" -ge "$all" ] || { say "$why; $((all - copy)) spends since would be forgotten. To count them as spent: install.sh back accept"; return 2; }
    return 1
}
readable() { for file in $(configurations); do reads "$1" "$2" "$file" || [ $? = 1 ] || return 1; done; }

# goes_back RELEASE NOW: every ledger that RELEASE cannot read gives way to its copy, and stands in newer/ from then on. What the
# copy lacks counts as spent, if the mark says all of it; else the ledger stays.
goes_back() {
    for file in $(configurations); do
        reads "$1" "$2" "$file" && continue || [ $? = 1 ] || return 1
        newer=$(dirname "$ledger")/newer
        rm -rf "$newer"
        mkdir -m 0700 "$newer"
        for part in "$ledger" "$ledger-wal" "$ledger-log"; do [ ! -e "$part" ] || mv "$part" "$newer"; done
        cp -p "$ledger-before" "$ledger"
        sync
        [ "$copy" -lt "$all" ] || continue
        [ "$(figure "$1" behind "$file" || echo 0)" -lt "$all" ] || ! daemon "$opt/releases/$1/bin/hushgrid" ledger accept "$file" >&2 || continue
        mv -f "$newer"/* "$(dirname "$ledger")" && rmdir "$newer"
        say "the mark of $file does not say all that was spent: its ledger stays as it is, which $1 cannot read"
        return 1
    done
}

# up UNIT: starts it, and waits for READY.
up() { systemctl reset-failed "$1" 2>/dev/null || true; timeout "$ready" systemctl start "$1" 2>/dev/null; }
steady() { [ "$(systemctl is-active "$1")" = active ] && [ "$(systemctl show -P NRestarts "$1")" = 0 ]; }
connected() { case $(systemctl show -P StatusText "$1") in "waits for the broker"*) return 1 ;; esac; }
reaches() { n=0; until connected "$1"; do n=$((n + 1)); [ "$n" -le "$ready" ] || return 1; sleep 1; done; }

# healthy UNITS ONLINE: all are READY with what `current` is now, and stay so; those of ONLINE reach the broker, as they did
# before. Says which does not, with its last line.
healthy() {
    [ -n "$1" ] || return 0
    for unit in $1; do up "$unit" || { unwell "$unit" "is not READY"; return 1; }; done
    sleep "$settle"
    for unit in $1; do steady "$unit" || { unwell "$unit" "is not READY"; return 1; }; done
    for unit in $2; do reaches "$unit" || { unwell "$unit" "does not reach the broker"; return 1; }; done
}
unwell() { say "$1 $2 with $(current): $(journalctl -u "$1" _TRANSPORT=stdout -n 1 -o cat 2>/dev/null)"; }

# take RELEASE: it becomes `current`, or the one before goes on.
take() {
    before=$(current)
    if [ -z "$before" ] || [ "$before" = "$1" ]; then
        switch "$1"
        return 0
    fi
    [ -n "$work" ] || work=$(mktemp -d)
    chmod 0700 "$work"
    checks "$1" && readable "$1" "$before" || fail "$before goes on"
    active= online=
    if booted; then
        active=$(running)
        online=$(for unit in $active; do ! connected "$unit" || echo "$unit"; done)
        [ -z "$active" ] || systemctl stop $active
    fi
    if ! goes_back "$1" "$before"; then
        for unit in $active; do up "$unit" || true; done
        fail "$before goes on"
    fi
    switch "$1"
    if healthy "$active" "$online"; then return 0; fi
    systemctl stop $active
    accept=
    if ! goes_back "$before" "$1"; then
        tidy "$before"
        for unit in $active; do up "$unit" || true; done
        fail "$before cannot go on: $1 stays"
    fi
    switch "$before"
    for unit in $active; do up "$unit" || say "$unit does not start with $before either: journalctl -u $unit"; done
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
    shift
    mkdir -p "$units"
    for unit in "$@"; do own 0644 root "$here/$unit" "$units/"; done
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
package)
    # What a machine has it keeps; whether it is a device or the coordinator, its owner says by the unit that is enabled.
    program "${HUSHGRID_EXTRA:-$(cat "$opt/current/extra" 2>/dev/null || echo model)}" hushgrid-node@.service hushgrid-coordinator.service
    folder "$etc" "$etc/certs" "$etc/nodes"
    say "$(current) is installed. Configuration goes to /etc/hushgrid; examples: /usr/lib/hushgrid/deploy"
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
    case ${2:-} in '' | accept) accept=${2:-} ;; *) usage ;; esac
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
