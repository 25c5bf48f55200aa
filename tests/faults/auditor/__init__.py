"""The parts of the auditor, whose way in is ``tests.faults.audit``; none imports the runtime or Django."""
