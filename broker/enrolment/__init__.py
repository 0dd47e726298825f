"""Who belongs to a fleet: its authority, its members' certificates, what each may say, and how one is put out.

It runs on the operator's machine. No daemon imports it.
"""
