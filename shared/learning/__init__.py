"""What a client does with its data: samples, networks, local training and personalization.

There is one subpackage per subject: `data`, `network` and `training`. Code that sends or receives
messages belongs in `rampart_fl.shared.agent`.
"""
