#!/bin/sh
# Installs one role on a Debian machine, as root, from a checkout:   sh deploy/install.sh node|coordinator|broker
# It may be run again: programs and units are replaced, configuration that is there is left alone.
# After it: put certificates and configuration in place (docs/two-machines.md), then enable the unit it names.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
role=${1:-}
keep() { [ -e "$2" ] || install -m "$3" -o root -g "$4" "$1" "$2"; }

case $role in
node | coordinator)
    # A lasting system user: it owns the ledgers.
    id hushgrid >/dev/null 2>&1 || useradd --system --home-dir /var/lib/hushgrid --shell /usr/sbin/nologin hushgrid

    # The program, in an environment of its own. A node that builds its own zone model needs the extra "model"; one that
    # is given the file of `hushgrid case zones --export` needs only "zones", as a coordinator does.
    extra=zones
    [ "$role" = coordinator ] || extra=${HUSHGRID_EXTRA:-model}
    python3 -m venv /opt/hushgrid
    /opt/hushgrid/bin/pip install --quiet "$here/..[$extra]"

    # Configuration is root's to write and the daemon's to read; loads and keys are nobody else's.
    install -d -m 0750 -o root -g hushgrid /etc/hushgrid /etc/hushgrid/certs
    if [ "$role" = node ]; then
        install -d -m 0750 -o root -g hushgrid /etc/hushgrid/nodes
        install -m 0644 "$here/hushgrid-node@.service" /etc/systemd/system/
        echo "next: /etc/hushgrid/nodes/NAME.yaml, then: systemctl enable --now hushgrid-node@NAME"
    else
        keep "$here/coordinator.yaml" /etc/hushgrid/coordinator.yaml 0640 hushgrid
        keep "$here/scenario.yaml" /etc/hushgrid/scenario.yaml 0640 hushgrid
        install -m 0644 "$here/hushgrid-coordinator.service" /etc/systemd/system/
        echo "next: /etc/hushgrid/coordinator.yaml, then: systemctl enable --now hushgrid-coordinator"
    fi
    [ ! -d /run/systemd/system ] || systemctl daemon-reload
    ;;
broker)
    command -v /usr/sbin/mosquitto >/dev/null || apt-get install --yes mosquitto
    # mosquitto.conf is replaced whole; what was there stays beside it.
    install --backup=numbered -m 0644 "$here/mosquitto.conf" /etc/mosquitto/mosquitto.conf
    keep "$here/acl" /etc/mosquitto/hushgrid.acl 0640 mosquitto
    echo "next: certificates in /etc/mosquitto/certs, then: systemctl restart mosquitto"
    ;;
*)
    echo "usage: sh deploy/install.sh node|coordinator|broker" >&2
    exit 2
    ;;
esac
