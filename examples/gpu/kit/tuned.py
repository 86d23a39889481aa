"""What a tuning run's document says, in the form that the steps ask for."""

import collections
import json


def key(config):
    return json.dumps(config, sort_keys=True)


class Tuned:
    """The one operation of a document of `tune`."""

    def __init__(self, document):
        self.document = document
        if not document["operations"]:
            reasons = [label["reason"] for label in document["missed"]]
            raise RuntimeError("; ".join(reasons) or "the module's call matched no recording")
        self.operation = document["operations"][0]
        self.candidates = self.operation.get("candidates", [])
        if not self.candidates:
            raise RuntimeError(f"{self.operation['status']}: {self.operation.get('reason')}")
        self.count = collections.Counter(candidate["status"] for candidate in self.candidates)

    @property
    def measured(self):
        """Median nanoseconds by config."""
        return {
            key(one["config"]): one["median_ns"]
            for one in self.candidates
            if one["status"] in ("measured", "same-program") and one.get("median_ns")
        }

    @property
    def failed(self):
        """Kind and message of each failure by config."""
        return {key(one["config"]): one["failure"] for one in self.candidates if one["status"] == "failed"}

    @property
    def refused(self):
        """The configs that the compiler refused."""
        return sorted(config for config, failure in self.failed.items() if failure["kind"] == "compile")

    @property
    def unexpected(self):
        """Failures other than a compiler's refusal, one line each."""
        others = ((config, one) for config, one in self.failed.items() if one["kind"] != "compile")
        return [f"{config}: {one['kind']}: {one['message']}" for config, one in others]

    @property
    def best(self):
        return (self.operation.get("best") or self.operation["baseline"])["config"]

    @property
    def baseline(self):
        return self.operation["baseline"]["config"]

    @property
    def ties(self):
        """The configs that cannot be told from the best."""
        return {key(config) for config in [*self.operation.get("tie_set", []), self.best]}

    def spent(self, phase):
        """Seconds of a phase."""
        return self.operation.get("time_breakdown", {}).get(f"{phase}_ns", 0) / 1e9

    def clock(self):
        """By which clock it was measured; the reason, if there is no profile."""
        if self.document["source"] == "device-profile":
            return "timed by the device's profile"
        notes = [note for note in self.document["notes"] if note.startswith("timed by the host clock")]
        return notes[0] if notes else "timed by the host clock, without a reason"

    def outcome(self):
        """The decision in a few words."""
        if self.operation["status"] == "tuned":
            return f"{short(self.best)} is {self.operation['speed_up']:.2f} times as fast as the baseline"
        return f"{self.operation['status']}: {self.operation.get('reason')}"

    def data(self):
        """What is noted of it."""
        keys = (
            "status",
            "reason",
            "speed_up",
            "speed_up_interval",
            "resolution",
            "time_breakdown",
            "flags",
            "rounds_measured",
        )
        return {
            "best": self.best,
            "baseline": self.baseline,
            "medians_ns": self.measured,
            "failed": self.failed,
            **{name: self.operation.get(name) for name in keys},
            **{name: self.document.get(name) for name in ("timer", "source", "metric", "launch", "clocks", "notes")},
        }


def short(config):
    """The values of a config."""
    return "/".join(str(value) for value in config.values())
