"""Where things stand in the object store: names are functions of what they hold."""

from schema.ids import MaterialId, TaskId, UserId


def upload_key(user_id: UserId, material_id: MaterialId) -> str:
    """Where a caller may write, and may do so again while the address he was handed is good."""
    return f"uploads/{user_id}/{material_id}"


def checked_key(user_id: UserId, material_id: MaterialId, once: str) -> str:
    """A copy of an upload while it is checked: a name that is used once, by one request."""
    return f"{upload_key(user_id, material_id)}.{once}"


def material_key(user_id: UserId, material_id: MaterialId) -> str:
    """The object of a material. No address to write here is ever handed out.

    The api puts nothing here but bytes of the declared digest, and the id is derived from that
    digest: whoever writes it, and however often, writes the same.
    """
    return f"materials/{user_id}/{material_id}"


def result_key(task_id: TaskId, token: int, name: str) -> str:
    """The object of one file of a result: only the granted token's name ever becomes the task's."""
    return f"results/{task_id}/{token}/{name}"


def checkpoint_key(task_id: TaskId, token: int) -> str:
    """What an attempt that gave up early saved, for the next one to go on from."""
    return f"checkpoints/{task_id}/{token}"


def failure_key(day: str, task_id: TaskId, token: int) -> str:
    """What led to the failure of a task; `day` is that of the failure, as 2026-03-02."""
    return f"failures/{day}/{task_id}-{token}.json"


def letter_key(day: str, letter_id: str) -> str:
    """A command that could not be worked on."""
    return f"failures/{day}/letter-{letter_id.replace('/', '-')}.json"
