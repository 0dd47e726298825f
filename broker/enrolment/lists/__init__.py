"""Who may publish and read what in a fleet, and the same as each kind of broker reads it: functions from it to text."""
