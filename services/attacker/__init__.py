"""The attacker: hosts hostile clients, which use the same protocol as honest ones, and a cohort."""
