"""Whether a policy may be adopted: the same judgement on every partition, of quotas and of pools.

All of them must stand on the same document under one version, so none may be laxer than another.
"""

from enum import Enum
from typing import Final, NamedTuple

from schema.policy import Policy, PolicyError, check_policy
from schema.refusals import Refusal


class Adoption(Enum):
    """What becomes of a policy that is not refused."""

    ADOPT = "adopt"
    ALREADY = "already"
    """It is the one in force."""


class Refused(NamedTuple):
    """Why it is not adopted."""

    reason: Refusal
    detail: str = ""


ADOPT: Final = Adoption.ADOPT
ALREADY: Final = Adoption.ALREADY


def judge(current: Policy | None, new: Policy) -> Adoption | Refused:
    """Versions only rise; the same one again is already so, unless it says something else.

    The zone is that of the first policy: in another one the running month would begin anew, and
    with it everybody's credits.
    """
    try:
        check_policy(new)
    except PolicyError as error:
        return Refused(Refusal.POLICY_INVALID, str(error))
    if current is None:
        return ADOPT
    if new.version < current.version:
        return Refused(Refusal.POLICY_OUTDATED, f"version {current.version} is in force")
    if new.version == current.version:
        return ALREADY if new == current else Refused(Refusal.IDEMPOTENCY_CONFLICT)
    if new.timezone != current.timezone:
        return Refused(Refusal.POLICY_INVALID, f"timezone: {current.timezone} is fixed")
    return ADOPT
