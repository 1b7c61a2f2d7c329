"""Words of a recording: JSON lines, and what could be a secret taken out of them. No import: nothing is loaded for it.

The rules are those of imgdiff's own ``config.py`` without regular expressions (a test holds the two together); where
this one is not sure it hides more.
"""

REDACTED = "[redacted]"
LONGEST = 16384  # characters of one word of a command line

_NAMES = frozenset(
    [
        "secret",
        "secrets",
        "token",
        "tokens",
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "credential",
        "credentials",
        "auth",
        "apikey",
        "cookie",
    ]
)
_KEYS = ("api", "access", "private", "signing", "encryption", "secret", "license", "account")
_OPTIONS = ("apikey", "api-key", "token", "password", "passwd", "secret", "credential")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SCHEME = _LETTERS | frozenset("0123456789+.-")
_OPTION = _LETTERS | frozenset("0123456789-")
_PLAIN = frozenset(map(chr, range(32, 127))) - frozenset('"\\')


def text(value: str) -> str:
    """Return a JSON string; bytes that are no UTF-8 (surrogates) stay as they are, written ``\\udcXX``."""
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return '"' + value + '"'
    parts = []
    for char in value:
        number = ord(char)
        if char in _PLAIN:
            parts.append(char)
        elif number < 0x10000:
            parts.append("\\u%04x" % number)
        else:
            number -= 0x10000
            parts.append("\\u%04x\\u%04x" % (0xD800 + (number >> 10), 0xDC00 + (number & 0x3FF)))
    return '"' + "".join(parts) + '"'


def json(value: object) -> str:
    """Return None, a bool, a number, a string, or a list, tuple or dict of such as JSON."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):
        return "%.6f" % value
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([json(each) for each in value]) + "]"
    if isinstance(value, dict):
        return "{" + ",".join([text(str(key)) + ":" + json(each) for key, each in value.items()]) + "}"
    return str(value)


# Secrets -------------------------------------------------------------------------------------------------------------


def secret_name(name: str) -> bool:
    """Tell whether a variable's name looks like a secret's."""
    words = _folded(name).rstrip("\n").split("_")
    if not _NAMES.isdisjoint(words) or words[-1] == "pat":
        return True
    for at, word in enumerate(words):
        if word.endswith("key") and (word[:-3] in _KEYS or (word == "key" and at and words[at - 1] in _KEYS)):
            return True
        if word == "key" and words[at + 1 :] in ([], ["id"]):
            return True
    return False


def _folded(name: str) -> str:
    """Return a name in small letters, those that a pattern takes for one as well."""
    return name.replace("\u0130", "i").lower().replace("\u017f", "s").replace("\u0131", "i")


def variable(name: str, value: str) -> str:
    """Return a variable's value as it may be written."""
    return REDACTED if value and secret_name(name) else urls(value)


def urls(value: str) -> str:
    """Return the text with the user part of every URL that has one replaced."""
    at = value.find("://")
    if at < 0 or "@" not in value:
        return value
    done, pieces = 0, []
    while at >= 0:
        begin = at
        while begin > done and value[begin - 1] in _SCHEME:
            begin -= 1
        while begin < at and value[begin] not in _LETTERS:
            begin += 1
        end = at + 3
        while end < len(value) and not value[end].isspace() and value[end] not in "'\"":
            end += 1
        if begin < at and end > at + 3:
            pieces += [value[done:begin], _url(value[begin:end])]
            done = end
        at = value.find("://", max(done, at + 3))
    return "".join([*pieces, value[done:]])


def _url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    place = rest
    for end in "/?#":
        place = place.partition(end)[0]
    odd = "[" in place or "]" in place or not place.isascii()
    if "@" not in place and not (odd and "@" in rest):
        return url
    authority, slash, path = rest.partition("/")
    return scheme + "://" + REDACTED + "@" + authority.rpartition("@")[2] + slash + path


def _option(word: str) -> "tuple[str, str | None] | None":
    """Return the name and the value of an option whose name looks like a secret's."""
    name, equals, value = word.partition("=")
    folded = _folded(name)
    bare = folded.rstrip("\n")
    if not bare.startswith("-") or not _OPTION.issuperset(bare) or not any(each in bare for each in _OPTIONS):
        return None
    return name, (value if equals else None)


def argv(words: "list[str]") -> "list[str]":
    """Return a command line as it may be written."""
    shown = []
    hide_next = False
    for word in words:
        option = _option(word)
        name, equals, value = word.partition("=")
        if hide_next and not word.startswith("-"):
            shown.append(REDACTED)
            hide_next = False
        elif option is not None:
            hide_next = option[1] is None
            shown.append(word if hide_next else option[0] + "=" + REDACTED)
        elif equals and value and " " not in name and secret_name(name):
            shown.append(name + "=" + REDACTED)
        else:
            hide_next = False
            shown.append(command(word) if any(char.isspace() for char in word.strip()) else urls(word))
    return [word if len(word) <= LONGEST else word[:LONGEST] + "..." for word in shown]


def command(line: str) -> str:
    """Return a shell command with its words redacted as a command line's are."""
    words = _words(line)
    if len(words) < 2:
        quote, inner = line[:1], line[1:-1]
        if len(line) > 2 and quote in ("'", '"') and line.endswith(quote):
            return quote + command(inner) + quote
        return urls(line)
    pieces, done = [], 0
    for (begin, end), shown in zip(words, argv([line[begin:end] for begin, end in words])):  # noqa: B905  not in 3.8
        pieces += [line[done:begin], shown]
        done = end
    return urls("".join([*pieces, line[done:]]))


def _words(line: str) -> "list[tuple[int, int]]":
    """Return where the words of a shell command begin and end; a quote that is not closed belongs to none."""
    found = []
    at = begin = 0
    size = len(line)
    while at < size:
        char = line[at]
        close = line.find(char, at + 1) if char in "'\"" else at
        if char.isspace() or close < 0:
            if begin < at:
                found.append((begin, at))
            at = begin = at + 1
        else:
            at = close + 1
    if begin < size:
        found.append((begin, size))
    return found
