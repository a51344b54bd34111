"""How often each kind of look is taken, so that all of them together stay inside the overhead budget.

A look earns credit from the time the training itself takes and spends what it was measured to cost. The first
steps are looked at closely (structure shows there), then rarer and rarer; from then on a look is taken when its credit
covers it, and in any case at steps that grow geometrically, so that a run of any length has a record of itself. The
ceiling of the whole job (ceiling.py) stands above all of this: what does not fit is put off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchdoctor.attach.ceiling import Ceiling

EARLY_STEPS = frozenset((0, 1, 2, 3, 5, 8, 12, 16, 20))
GROWTH = 1.2
"""Ratio of successive forced looks after the early ones: about thirteen a decade of steps, so four in the last half."""
LATE_GROWTH = 1.5
"""The same once the steps after the first ones have used up what nobody notices: about six a decade."""
SMOOTHING = 0.3
CREDIT_LOOKS = 2.0
"""Credit is kept for at most this many looks, so that a long validation does not buy a burst."""
FLOOR_SHARE = 0.1
"""Where the structural signals alone use up the budget, looks may still spend this part of it."""

ON_OUR_CLOCK = 0.5
"""Part of the budget that is spent by what we time; the rest is for the thread that writes, and for colder caches."""
DETAIL_SHARE = 0.1
"""Part of the budget for reading calls, clearing and times on every step; beyond it, steps are only counted."""
DETAIL_INTERVAL, LONGEST_DETAIL_INTERVAL = 64, 1024
DETAIL_GROWTH = 1 / 16
"""There is a full step at least every 64. A loop that has repeated itself for long is not likely to change: it waits
for this part of the steps since it last did something new, but never longer than 1,024."""

DEBT_STEPS = 200
"""What is not in looks (structure read again) is paid back before further looks, over at most so many steps."""


@dataclass
class Look:
    """One kind of look and its account."""

    name: str
    share: float
    """part of the budget it may use"""
    cost: float = 0.0
    credit: float = 0.0
    taken: int = 0
    forced_at: float = float(max(EARLY_STEPS)) + 1
    last_step: int = -1
    interval: float = 1.0


_NONE: frozenset[str] = frozenset()
_LAST_EARLY = max(EARLY_STEPS)


class Governor:
    """Decides at the start of each step which looks it gets."""

    def __init__(
        self,
        budget: float,
        shares: dict[str, float],
        *,
        dense: frozenset[str] = frozenset(),
        every_step: bool = False,
        ceiling: Ceiling | None = None,
        parts: Mapping[str, int] | None = None,
    ) -> None:
        self.budget = budget
        self.dense = dense
        """looks that are cheap enough for each of the first steps"""
        self.every_step = every_step
        self.ceiling = ceiling or Ceiling()
        self._parts = parts or {}
        """looks that measure less where the ceiling is near, and the smallest share of them"""
        self.looks = {name: Look(name, share) for name, share in shares.items()}
        self.training_seconds = 0.0
        self.own_seconds = 0.0
        self._debt = 0.0
        self.detailed = True
        """whether the step that was planned last is read in full, or only counted"""
        self._bare = 0.0
        self._detail_cost = 0.0
        self._count_cost = 0.0
        self._detail_at = 0.0
        self._changed_at = 0
        """the step at which the loop last did something new"""
        self.settling_seconds = 0.0
        """our time in the first steps, which are looked at whatever it costs"""

    def plan(self, step: int) -> frozenset[str]:
        """Names of the looks to take on this step."""
        if self.every_step:
            return frozenset(self.looks)
        if step <= _LAST_EARLY:
            self.detailed = True
            wanted = (name for name in self.looks if step in EARLY_STEPS or name in self.dense)
            return frozenset(name for name in wanted if self._fits(self.looks[name]))
        due = [name for name, look in self.looks.items() if self._due(look, step)]
        self.detailed = bool(due) or step >= self._detail_at
        if self.detailed:
            self._detail_at = step + self._detail_interval(step)
        return frozenset(due) if due else _NONE

    def loop_changed(self, step: int) -> None:
        """Another model, optimizer or stage: what follows is looked at as often as at the beginning."""
        self._changed_at = step
        self._detail_at = min(self._detail_at, step + 1)

    @property
    def full_at(self) -> float:
        """The step at which a full one is due, whatever its looks will have earned until then."""
        return min(self._detail_at, *(look.forced_at for look in self.looks.values()))

    def _detail_interval(self, step: int) -> float:
        # Where a counted step turns into a full one, its cost is taken for that of counting. All steps would then be
        # full, and counting would never be measured again.
        extra = max(self._detail_cost - self._count_cost, self._detail_cost / 2)
        allowed = DETAIL_SHARE * self.budget * self._bare
        longest = min(max(DETAIL_INTERVAL, DETAIL_GROWTH * (step - self._changed_at)), LONGEST_DETAIL_INTERVAL)
        return min(extra / allowed, longest) if allowed > 0 else 1.0

    def _due(self, look: Look, step: int) -> bool:
        if step >= look.forced_at:
            if not self._fits(look):
                look.forced_at = step * GROWTH
                return False
            unnoticed = self.own_seconds < self.ceiling.once
            look.forced_at = step * (GROWTH if unnoticed else LATE_GROWTH)
            return True
        return 0 < look.cost <= look.credit

    def _fits(self, look: Look) -> bool:
        """Under the ceiling, as a whole or in part."""
        return self.ceiling.can_spend(look.cost / self._parts.get(look.name, 1))

    def spent(self, name: str, seconds: float, step: int) -> None:
        """A look was taken at this cost."""
        look = self.looks[name]
        look.taken += 1
        first = look.cost == 0.0 or look.taken <= 3  # the first looks carry one-time costs
        look.cost = seconds if first else (1 - SMOOTHING) * look.cost + SMOOTHING * seconds
        look.credit = max(look.credit - seconds, -look.cost)
        if look.last_step >= 0:
            look.interval = (1 - SMOOTHING) * look.interval + SMOOTHING * (step - look.last_step)
        look.last_step = step

    def earned(self, step_seconds: float, own_seconds: float, look_seconds: float, step: int, counted: int = 0) -> None:
        """This step of training ended: `own_seconds` of it were ours, `look_seconds` of those in looks. Or several
        ended, that were only counted."""
        bare = max(step_seconds - own_seconds, 0.0)
        self._bare += SMOOTHING * (bare / max(1, counted) - self._bare)
        if counted:
            self._count_cost += SMOOTHING * (own_seconds / counted - self._count_cost)
        elif not look_seconds and step > _LAST_EARLY:
            self._detail_cost += SMOOTHING * (own_seconds - self._detail_cost)
        if step <= _LAST_EARLY:
            self.settling_seconds += own_seconds
        else:
            self.training_seconds += bare
            self.own_seconds += own_seconds
        due = ON_OUR_CLOCK * self.budget * bare
        balance = due - (own_seconds - look_seconds) - self._debt
        self._debt = min(-balance, DEBT_STEPS * due) if balance < 0 and step > _LAST_EARLY else 0.0
        income = max(balance, FLOOR_SHARE * due)
        for look in self.looks.values():
            credit = look.credit + look.share * income
            most = CREDIT_LOOKS * look.cost
            look.credit = credit if credit < most else most

    @property
    def overhead(self) -> float | None:
        """Share of the bare training time that we have used so far, after the first steps."""
        return self.own_seconds / self.training_seconds if self.training_seconds > 0 else None

    def cadence(self) -> dict[str, int]:
        return {look.name: max(1, round(look.interval)) for look in self.looks.values() if look.taken}
