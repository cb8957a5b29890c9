"""Makes torch deterministic, and sets the number of its threads."""

import os

from rampart_fl.services.aggregator.settings import Settings
from rampart_fl.shared.errors import ConfigurationError


def set_up_torch(settings: Settings) -> None:
    """Sets up torch for the round engine of this process.

    Raises:
        ConfigurationError: the device does not exist.
    """
    import torch

    # cuBLAS is deterministic only with a workspace of fixed size. In deterministic mode, torch
    # therefore refuses cuBLAS operations unless this variable sets such a workspace.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(settings.threads)
    # Unlike `use_deterministic_algorithms`, this call does not import torch's compiler.
    torch.set_deterministic_debug_mode("error")
    if settings.device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigurationError(f"RAMPART_DEVICE={settings.device}, but torch sees no CUDA device")
