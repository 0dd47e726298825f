"""The example fleet on a machine that boots: broker, coordinator and three zones, installed as docs/years.md says."""

ZONES = ("z1", "z2", "z3")
NODES = [f"hushgrid-node@{z}" for z in ZONES]
COORDINATOR = "hushgrid-coordinator"
ALL = [*NODES, COORDINATOR]
INSTALL = """
echo '127.0.0.1 broker.example' >> /etc/hosts
sh {house}/deploy/certificates.sh /root/fleet broker.example coordinator z1 z2 z3
sh {house}/deploy/install.sh broker 3
install -o mosquitto -m 0400 /root/fleet/ca.crt /root/fleet/broker.crt /root/fleet/broker.key /etc/mosquitto/certs
systemctl restart mosquitto
sh {house}/deploy/install.sh node
sh {house}/deploy/install.sh coordinator
install -o root -g hushgrid -m 0640 /root/fleet/ca.crt /root/fleet/coordinator.* /root/fleet/z*.crt /root/fleet/z*.key /etc/hushgrid/certs
install -o root -g hushgrid -m 0640 {house}/deploy/nodes/* /etc/hushgrid/nodes
sed -i 's/wait_s: 60/wait_s: 5/; s/silent_s: 10/silent_s: 5/' /etc/hushgrid/coordinator.yaml
systemctl enable --now hushgrid-node@z1 hushgrid-node@z2 hushgrid-node@z3 hushgrid-coordinator
"""


def shows(machine, unit):
    state, sub, restarts, status = machine.unit(unit, "ActiveState", "SubState", "NRestarts", "StatusText")
    return f"{state} ({sub}), {restarts} restarts" + (f", Status: {status}" if status else "")


def process(machine, unit):
    return machine.unit(unit, "ActiveState", "MainPID", "NRestarts")


def said(machine, unit, cursor, text):
    """The first line of the process that has `text`, waited for."""
    lines = machine.wait_for(f"journalctl -u {unit} -o cat --after-cursor '{cursor}'", text).splitlines()
    return next(line for line in lines if text in line)


def a_run(machine, cursor=None):
    """A run begins when it is asked for, and is done."""
    cursor = cursor or machine.cursor()
    machine.run(f"systemctl kill -s USR1 {COORDINATOR}")
    journal = f"journalctl -u {COORDINATOR} -o cat --after-cursor '{cursor}'"
    assert " stopped" not in (said := machine.wait_for(journal, "the next run:")), said
