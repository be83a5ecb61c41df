"""What docs/security.md says, as tests: each of its sentences names one."""
