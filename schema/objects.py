"""Where things stand in the object store: names are functions of what they hold."""

from schema.ids import MaterialId, TaskId, UserId


def material_key(user_id: UserId, material_id: MaterialId) -> str:
    """The object of an uploaded material."""
    return f"materials/{user_id}/{material_id}"


def result_key(task_id: TaskId, token: int, name: str) -> str:
    """The object of one file of a result: only the granted token's name ever becomes the task's."""
    return f"results/{task_id}/{token}/{name}"
