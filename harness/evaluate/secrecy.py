"""What a solution, whose output is kept in logs and reports, must not read from its environment."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Words of a name between underscores; some also at its end, or anywhere. What is held back by
# mistake costs a solution nothing that the judge needs: PATH, HOME, CUDA_*, cache folders and
# PYTHONPATH hold none of these.
_SECRET_WORD = re.compile(
    r"(^|_)(TOKEN|KEY|PASS|PASSPHRASE|PWD|PAT|AUTH|AUTHORIZATION|CREDENTIALS?|CREDS?|COOKIE|DSN|"
    r"ASKPASS|NETRC|CONN)S?(_|$)"
    r"|(TOKEN|KEY|PASSPHRASE|CREDENTIALS?|AUTHORIZATION|COOKIE)S?$|DSN$"
    r"|SECRET|PASSWORD|PASSWD|API_?KEY",
    re.IGNORECASE,
)
_WORKING_FOLDER = {"PWD", "OLDPWD"}  # of every shell
_SECRET_VALUE = re.compile(r"://[^/@\s]+@|\w*(Key|Password|Token)=", re.IGNORECASE)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables whose names and values do not look like a secret.

    Names: a word such as TOKEN, KEY, PASS or AUTH between underscores, TOKEN, KEY and the like at
    the end, SECRET, PASSWORD or API_KEY anywhere. Values: an address with a user in it, or Key=,
    Token= and Password= pairs. A secret under an innocent name is not found: isolation is against
    accidents, not against intent.
    """
    return {
        name: value
        for name, value in environment.items()
        if (name in _WORKING_FOLDER or not _SECRET_WORD.search(name))
        and not _SECRET_VALUE.search(value)
    }
