"""The command lines that an image is traced for: the one given, its own, or those of the engine's profile."""

from __future__ import annotations

from collections.abc import Sequence

from imgdiff.model import Attribution, ImageConfig, Profile, Tree
from imgdiff.trace.launch.entry import Follower
from imgdiff.trace.launch.programs import python_names
from imgdiff.trace.launch.started import Launch
from imgdiff.trace.launch.words import environment_of, split_entry


class Commands:
    """What can be started in one image."""

    def __init__(
        self,
        tree: Tree,
        attribution: Attribution,
        config: ImageConfig | None,
        profile: Profile,
        entry: str | None,
        follower: Follower,
    ) -> None:
        self.tree, self.attribution, self.config = tree, attribution, config
        self.profile, self.entry, self.follower = profile, entry, follower
        self.env = environment_of(config)
        self.cwd = (config.working_dir if config is not None else "").strip("/").encode("utf-8", "surrogateescape")
        self.caveats: dict[str, None] = {}
        self.chosen = False  # one command line is traced, not every entry of the profile
        self.others: list[Launch] = []  # what the way from the entry starts that is no Python
        self.steps: list[Launch] = []  # other Pythons on the way: ``python patch.py && exec vllm serve``

    def launches(self) -> list[Launch]:
        """What can be started: the entry given, the image's own, or every entry of the profile."""
        argv: list[str] = []
        if self.entry is not None:
            argv = split_entry(self.entry)
        elif self.config is not None:
            argv = [*self.config.entrypoint, *self.config.cmd]
        found = self._pythons(argv) if argv else []
        fitting = [launch for launch in found if self._is_entry(launch)]
        if fitting or (found and (self.entry is not None or not self.profile.entries)):
            self._say_entry(argv)
            self.chosen = True
            self.steps = [launch for launch in found if fitting and launch not in fitting]
            return fitting or found
        if not self.profile.entries:
            if argv and not found:
                found = self.follower.follow(argv, self.env, self.cwd)
            return found
        names = " and ".join(self.profile.entries)
        if self.entry is not None:
            why = f"`{' '.join(argv)}` leads to none of them"
        else:
            why = "there is no image config" if self.config is None else "the image's entry names none of them"
        self.caveats[f"traced under every entry of {self.profile.name} ({names}), since {why}; --entry chooses one"] = (
            None
        )
        launches = [launch for each in self.profile.entries for launch in self._pythons(self._words(each))]
        return [*launches, *found]

    def _say_entry(self, argv: Sequence[str]) -> None:
        shown = " ".join(argv)
        self.caveats[f"traced for the command line `{shown}`; another command can load other files"] = None

    def _pythons(self, argv: Sequence[str]) -> list[Launch]:
        launches = self.follower.follow(argv, self.env, self.cwd)
        self.others += [each for each in launches if each.python is None]
        return [each for each in launches if each.python is not None]

    def _words(self, entry: str) -> list[str]:
        words = split_entry(entry)
        if words and words[0] == "python" and self.follower.programs.which("python", self.env, self.cwd) is None:
            words[0] = next(python_names(self.attribution, lambda path: self.tree.lookup(path) is not None), "python3")
        elif words and self.follower.programs.which(words[0], self.env, self.cwd) is None:
            for environment in self.attribution.environments:
                path = (environment.prefix + b"/" if environment.prefix else b"") + b"bin/" + words[0].encode()
                if self.tree.lookup(path) is not None:
                    return ["/" + path.decode("utf-8", "surrogateescape"), *words[1:]]
        return words

    def _is_entry(self, launch: Launch) -> bool:
        start = launch.python
        assert start is not None
        for each in self.profile.entries:
            words = split_entry(each)
            if words[:2] == ["python", "-m"]:
                if start.mode == "module" and start.target == words[2]:
                    return True
            elif (
                start.mode == "script"
                and start.target.rpartition("/")[2] == words[0]
                and (not start.arguments or len(words) == 1 or start.arguments[0] == words[1])
            ):
                return True
        return False
