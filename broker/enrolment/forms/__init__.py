"""The rights of a fleet as each kind of broker reads them: functions of `Access` that return texts."""
