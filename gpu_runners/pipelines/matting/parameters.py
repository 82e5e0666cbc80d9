"""What is wanted of an attempt of the scene `matting`."""

from gpu_runners.pipelines.pipeline import InputError, InputReason, Work, parameters_of
from schema.scenes.matting import MattingParameters, faults


def wishes_of(work: Work) -> MattingParameters:
    """What is wanted. Errors: InputError."""
    parameters = parameters_of(work, MattingParameters)
    for fault in faults(parameters, len(work.inputs)):
        if fault.field == "materials":
            raise InputError(InputReason.INPUTS, fault.message)
        raise InputError(InputReason.PARAMETERS, f"The parameters are wrong: {fault.message}")
    return parameters
