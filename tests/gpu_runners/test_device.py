"""What counts as memory that ran out, and what does not."""

import errno

import cv2
import numpy as np
import pytest

from gpu_runners.device import is_out_of_memory

_NO_MEMORY = (
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    RuntimeError("can't start new thread"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
    cv2.error("OpenCV(4): error: (-4:Insufficient memory) Failed to allocate 9 bytes"),
)
_OTHERS = (
    OSError(errno.ENOSPC, "No space left on device"),
    RuntimeError("shapes differ"),
    ValueError("out of memory"),
)


@pytest.mark.parametrize("error", _NO_MEMORY, ids=str)
def test_errors_of_libraries_that_had_no_memory_are_known(error: Exception) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize("error", _OTHERS, ids=str)
def test_other_errors_are_not(error: Exception) -> None:
    assert not is_out_of_memory(error)


def test_an_error_of_opencv_itself_is_told_by_its_code() -> None:
    with pytest.raises(cv2.error) as caught:
        cv2.cvtColor(np.zeros((2, 2), np.uint8), cv2.COLOR_BGR2GRAY)
    assert not is_out_of_memory(caught.value)
    caught.value.code = -4
    assert is_out_of_memory(caught.value)
