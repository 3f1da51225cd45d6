"""DRAM timing sets: one YAML file each, with its source named in it."""
