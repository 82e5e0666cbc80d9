"""Who asks: submissions of many users, cancels and retries by hand, materials, operators."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import msgspec

from schema import commands as c
from schema.codec import CODECS, encode
from schema.ids import (
    NO_TENANT,
    CommandId,
    MaterialId,
    TaskId,
    TenantId,
    UserId,
    account_of,
    command_id_of,
    material_id_of,
    task_id_of,
)
from schema.objects import content_key
from schema.policy import Policy
from schema.replies import DeadLetter
from schema.routes import Route
from schema.topics import SUBMISSIONS, Topic
from schema.words import CancelCause, Lane, MediaKind, Scene
from tests.simulation import policy as policies
from tests.simulation.cluster import Chaos
from tests.simulation.watch import Watch
from tests.simulation.world import Log, World

_LATE_MS = 8_000
_LANE_OF = {"free": Lane.P2, "pro": Lane.P1, "team": Lane.P0}


@dataclass(frozen=True)
class Person:
    user_id: UserId
    tenant_id: TenantId
    tier: str


def crowd(dice: Random) -> list[Person]:
    """Some users, of two tenants and of none."""
    people: list[Person] = []
    for number in range(dice.randint(5, 14)):
        tenant = dice.choice([NO_TENANT, TenantId("acme"), TenantId("tiny")])
        shard = dice.randint(0, 999_999)
        tier = dice.choice(["free", "pro", "pro", "team"])
        people.append(Person(UserId(f"user{number:02d}{shard:06d}"), tenant, tier))
    return people


class People:
    def __init__(self, world: World, log: Log, chaos: Chaos, watch: Watch) -> None:
        self._world = world
        self._log = log
        self._chaos = chaos
        self._watch = watch
        self._crowd = crowd(world.random)
        self._asked: list[tuple[Person, TaskId, Scene]] = []
        self._numbers = 0
        self._policy = self._next_policy()
        watch.set_aside = self._mend
        self.left = 0
        """Submissions that are still to come."""

    # --- operators -------------------------------------------------------------------------------

    def _next_policy(self) -> Policy:
        self._numbers += 1
        return policies.policy(self._numbers, self._world.random)

    def publish(self) -> None:
        """The next policy, to every partition that wants it."""
        policy = self._policy
        for topic in (Topic.QUOTA_COMMANDS, Topic.POOL_COMMANDS):
            for number in range(self._log.partitions):
                command = c.PublishPolicy(
                    command_id=CommandId(f"policy-{policy.version}-{topic}-{number}"),
                    policy=policy,
                    reply_to=0,
                )
                self._ask(command, Route(topic, number, "policy"))
        self._policy = self._next_policy()

    def _mend(self, letter: DeadLetter) -> None:
        """The code is right again: what waits behind the letter goes on, and it is told anew."""
        topic, partition = letter.topic, letter.partition
        key, value = letter.key or b"", letter.value or b""

        def mend() -> None:
            if letter.quarantined_key:
                release = c.ReleaseKey(
                    command_id=CommandId(f"release-{self._number()}"),
                    key=letter.quarantined_key,
                    who="anna",
                    why="it is mended",
                )
                self._log.append(topic, partition, key, encode(release))
            command = CODECS[Topic(topic)].decode(value)
            if getattr(command, "reply_to", None) is not None:
                asked = getattr(command, "reservation_id", command.command_id)
                self._watch.asked[asked] += 1
            self._log.append(topic, partition, key, value)

        self._world.after(self._world.between(300, 12_000), mend)

    def pause_a_lane(self) -> None:
        """For a while."""
        pool_id = self._world.random.choice(list(policies.SCENES.values()))
        lane = self._world.random.choice(list(Lane))
        number = self._number()
        pause = c.PauseLane(
            command_id=CommandId(f"pause-{number}"),
            pool_id=pool_id,
            lane=lane,
            who="anna",
            why="a drill",
            reply_to=1,
        )
        resume = c.ResumeLane(
            command_id=CommandId(f"resume-{number}"),
            pool_id=pool_id,
            lane=lane,
            who="anna",
            why="it is over",
            reply_to=1,
        )
        self._ask(pause)
        # Not before the last copy of the first: an order that is told late is a later order.
        self._world.after(self._world.between(_LATE_MS, 40_000), lambda: self._ask(resume))

    # --- submissions -----------------------------------------------------------------------------

    def come(self, tasks: int, within_ms: int) -> None:
        """So many submissions within this time, in bursts."""
        self.left = tasks
        bursts = [self._world.between(0, within_ms) for _ in range(max(tasks // 12, 1))]
        for _ in range(tasks):
            near = self._world.random.choice(bursts)
            at = near + self._world.between(0, 2_500)
            self._world.after(at, self._submit)

    def _submit(self) -> None:
        self.left -= 1
        world = self._world
        person = world.random.choice(self._crowd)
        scene = world.random.choice(list(policies.SCENES))
        key = f"key-{self._number()}"
        task_id = task_id_of(person.tenant_id, person.user_id, key)
        materials = self._materials(person) if world.chance(0.12) else ()
        command = self._submission(person, scene, task_id, "f1", materials)
        lane = _LANE_OF[person.tier]
        self._watch.submissions.add(command.command_id)
        self._ask(command, lane=lane)
        self._asked.append((person, task_id, scene))
        if world.chance(0.03):  # the same key, another body
            other = self._submission(person, scene, task_id, "f2", materials)
            world.after(world.between(1, 5_000), lambda: self._ask(other, lane=lane))
        if world.chance(0.2):
            soon = world.between(20, 350) if world.chance(0.6) else world.between(1, 20_000)
            world.after(soon, lambda: self._cancel(person, task_id))
        if world.chance(0.25):
            at = world.between(2_000, 60_000)
            world.after(at, lambda: self._retry(person, task_id, scene))
        if world.chance(self._chaos.garbage):
            self._nonsense(task_id)

    def _submission(
        self,
        person: Person,
        scene: Scene,
        task_id: TaskId,
        fingerprint: str,
        materials: Sequence[MaterialId],
    ) -> c.SubmitTask:
        world = self._world
        return c.SubmitTask(
            command_id=command_id_of("submit", task_id),
            task_id=task_id,
            origin=c.Origin(
                user_id=person.user_id,
                tenant_id=person.tenant_id,
                account_id=account_of(person.tenant_id, person.user_id),
                scene=scene,
                tier=person.tier,
                fingerprint=fingerprint,
                parameters=self._parameters(),
                material_ids=tuple(materials),
            ),
            card_seconds_claimed=world.random.choice([None, 1.0, 5.0]),
            reply_to=world.between(0, 5),
        )

    def _parameters(self) -> dict[str, bool]:
        """Most tasks are like any other; some are nothing, some are never done well."""
        dice = self._world.random.random()
        if dice < 0.15:
            return {"no_op": True}
        if dice < 0.20:
            return {"cursed": True}
        return {"kills": True} if dice < 0.22 else {}

    def _materials(self, person: Person) -> list[MaterialId]:
        """Declared, or not; all of it sent, or never; found to be as declared, or not."""
        found: list[MaterialId] = []
        for _ in range(self._world.between(1, 2)):
            number = self._number()
            sha256 = f"{number:064d}"
            material_id = material_id_of(person.user_id, sha256, "clip.mp4")
            found.append(material_id)
            if self._world.chance(0.1):
                continue
            register = c.RegisterMaterial(
                command_id=CommandId(f"register-{material_id}"),
                material_id=material_id,
                user_id=person.user_id,
                tenant_id=person.tenant_id,
                content_type="video/mp4",
                size=1_000,
                sha256=sha256,
                reply_to=2,
            )
            self._ask(register)
            if self._world.chance(0.85):
                self._send(person, material_id, sha256)
        return found

    def _send(self, person: Person, material_id: MaterialId, sha256: str) -> None:
        """Its parts, for longer than its task would wait without a word; then the prober's turn."""
        world, words = self._world, (material_id, person)
        at = world.between(100, 30_000)
        if world.chance(0.2):
            for number in range(1, world.between(2, 5)):
                at = number * 55_000
                world.after(at, partial(self._touch, *words, number))
        size = 1_000 if world.chance(0.85) else 999
        complete = c.CompleteMaterial(
            command_id=CommandId(f"complete-{material_id}"),
            material_id=material_id,
            user_id=person.user_id,
            tenant_id=person.tenant_id,
            reply_to=2,
        )
        world.after(at, partial(self._ask, complete))
        if world.chance(0.1):
            again = msgspec.structs.replace(
                complete, command_id=CommandId(f"again-{material_id}"), again_after=1, reply_to=None
            )
            world.after(at + world.between(100, 5_000), partial(self._tell, again))
        found = c.ConcludeMaterial(
            command_id=CommandId(f"conclude-{material_id}"),
            material_id=material_id,
            user_id=person.user_id,
            tenant_id=person.tenant_id,
            number=1,
            size=size,
            sha256=sha256,
            content_key=content_key(person.tenant_id, person.user_id, sha256),
            facts=c.MediaFacts(kind=MediaKind.VIDEO, container="mp4", duration_ms=9_000),
        )
        world.after(at + world.between(100, 5_000), partial(self._tell, found))

    def _touch(self, material_id: MaterialId, person: Person, number: int) -> None:
        touch = c.TouchUpload(
            command_id=CommandId(f"touch-{number}-{material_id}"),
            material_id=material_id,
            user_id=person.user_id,
            tenant_id=person.tenant_id,
        )
        self._tell(touch)

    def _cancel(self, person: Person, task_id: TaskId) -> None:
        if self._world.chance(0.1):
            person = self._world.random.choice(self._crowd)  # maybe a stranger
        cancel = c.CancelTask(
            command_id=CommandId(f"cancel-{task_id}-{self._number()}"),
            task_id=task_id,
            user_id=person.user_id,
            tenant_id=person.tenant_id,
            cause=CancelCause.USER,
            reply_to=3,
        )
        self._ask(cancel)

    def _retry(self, person: Person, task_id: TaskId, scene: Scene) -> None:
        """By hand: sensible if it has failed, and asked all the same sometimes if not."""
        task = self._watch.tasks.tasks.get(task_id)
        if (task is None or task.status != "FAILED") and not self._world.chance(0.15):
            return
        retry = c.RetryTask(
            command_id=CommandId(f"retry-{task_id}-{self._number()}"),
            task_id=task_id,
            user_id=person.user_id,
            tenant_id=person.tenant_id,
            account_id=account_of(person.tenant_id, person.user_id),
            scene=scene,
            tier=person.tier,
            reply_to=4,
        )
        self._ask(retry)

    def top_up(self) -> None:
        person = self._world.random.choice(self._crowd)
        contract = bool(person.tenant_id) and self._world.chance(0.5)
        top_up = c.TopUpQuota(
            command_id=CommandId(f"top-up-{self._number()}"),
            account_id=account_of(person.tenant_id, person.user_id),
            user_id=None if contract else person.user_id,
            scene=self._world.random.choice(list(policies.SCENES)),
            amount_micros=self._world.between(1, 8) * 1_000_000,
            who="anna",
            why="asked for",
            reply_to=5,
        )
        self._ask(top_up)

    def _nonsense(self, task_id: TaskId) -> None:
        """A record that nobody can read, among the others."""
        topic = self._world.random.choice(
            [
                Topic.TASK_COMMANDS,
                Topic.POOL_COMMANDS,
                Topic.POOL_COMMANDS,
                Topic.QUOTA_COMMANDS,
                Topic.MATERIAL_COMMANDS,
                SUBMISSIONS[Lane.P1],
            ]
        )
        value = self._world.random.choice([b"\xff\x00", b"{}", b"null", b'{"type":"nonsense"}'])
        number = self._world.between(0, self._log.partitions - 1)
        record = self._log.append(topic, number, task_id.encode(), value)
        self._watch.garbage.add((record.topic, record.partition, record.offset))

    # --- asking ----------------------------------------------------------------------------------

    def _ask(self, command: c.Command, place: Route | None = None, lane: Lane = Lane.P1) -> None:
        """Append it; who gets no answer in time asks again with the same words."""
        self._put(command, place, lane)
        while self._world.chance(self._chaos.doubled):
            delay = self._world.between(0, _LATE_MS)
            self._world.after(delay, lambda: self._put(command, place, lane))

    def _tell(self, command: c.Command) -> None:
        """Nobody waits for an answer; it may come twice."""
        self._log.put(command, Lane.P1)
        while self._world.chance(self._chaos.doubled):
            late = self._world.between(0, _LATE_MS)
            self._world.after(late, partial(self._log.put, command, Lane.P1))

    def _put(self, command: c.Command, place: Route | None, lane: Lane) -> None:
        self._watch.asked[command.command_id] += 1
        if place is None:
            self._log.put(command, lane)
        else:
            self._log.append(place.topic, place.partition, place.key.encode(), encode(command))

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers
