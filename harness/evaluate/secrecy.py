"""What a solution, whose output is kept in logs and reports, must not read from its environment."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET_NAME = re.compile(
    r"(TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTHORIZATION|COOKIE)S?$"
    r"|(TOKEN|KEY)_ID$|_PAT$|DSN$|_ASKPASS$|_AUTH_SOCK$|(SECRET|PASSWORD|PASSWD|API_?KEY)",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"://[^/@\s]+@")  # a user, and perhaps a password, in an address


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables whose names and values do not look like a secret.

    Names: TOKEN, KEY, SECRET, PASSWORD, CREDENTIALS and the like at their end, what leads to an
    agent or a prompt, or SECRET, PASSWORD or API_KEY anywhere. Values: an address with a user or a
    password in it.
    """
    return {
        name: value
        for name, value in environment.items()
        if not _SECRET_NAME.search(name) and not _SECRET_VALUE.search(value)
    }
