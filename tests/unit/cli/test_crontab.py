"""A crontab as Debian's cron reads it."""

import pytest

from mainspring_server.cli.crontab import Entry, Refused, read_crontab

REAL = """\
# m h  dom mon dow   command
SHELL=/bin/bash
PATH = "/usr/local/bin:/usr/bin:/bin"
MAILTO=""

17 *\t* * *\tcd / && run-parts --report /etc/cron.hourly
25 6    * * MON-FRI   test -x /usr/sbin/anacron || run-parts /etc/cron.daily
*/5 8-17 * jan,mar 1-5/2 /usr/bin/report --quiet > /dev/null 2>&1
CRON_TZ=Europe/Paris
@daily   /usr/bin/backup "$HOME"
0 3 * * sun mail -s "100\\% done" root%Dear root,%it is done.%
   @every 90s   echo often
"""


def test_a_real_crontab() -> None:
    found = list(read_crontab(REAL))
    assert all(isinstance(item, Entry) for item in found)
    hourly, daily, quiet, backup, mail, often = (i for i in found if isinstance(i, Entry))
    assert (hourly.line, hourly.expression) == (6, "17 * * * *")
    assert hourly.command == "cd / && run-parts --report /etc/cron.hourly"
    assert hourly.environment == {
        "SHELL": "/bin/bash",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "MAILTO": "",
    }
    assert daily.expression == "25 6 * * MON-FRI"
    assert quiet.expression == "*/5 8-17 * jan,mar 1-5/2"
    assert [entry.time_zone for entry in (quiet, backup, often)] == ["", *["Europe/Paris"] * 2]
    assert (backup.expression, backup.command) == ("@daily", '/usr/bin/backup "$HOME"')
    assert (mail.command, mail.stdin) == (
        'mail -s "100% done" root',
        "Dear root,\nit is done.\n",
    )
    assert (often.expression, often.command) == ("@every 90s", "echo often")


def test_the_user_field_of_the_systems_crontab() -> None:
    (entry,) = read_crontab("0 4 * * * root  /bin/true --all\n", with_user=True)
    assert isinstance(entry, Entry)
    assert (entry.user, entry.command) == ("root", "/bin/true --all")
    (refused,) = read_crontab("0 4 * * * root\n", with_user=True)
    assert isinstance(refused, Refused)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("@reboot /usr/bin/once", "init system"),
        ("* * * *", "five fields"),
        ("* * * * *", "five fields"),
        ("what is this", "five fields"),
    ],
)
def test_what_no_schedule_can_be_made_of(line: str, word: str) -> None:
    (refused,) = read_crontab(f"# a comment\n{line}\n")
    assert isinstance(refused, Refused)
    assert refused.line == 2
    assert word in refused.reason


def test_a_percent_that_is_meant_and_one_that_is_not() -> None:
    (entry,) = read_crontab("0 0 * * * date +\\%F\n")
    assert isinstance(entry, Entry)
    assert (entry.command, entry.stdin) == ("date +%F", None)
    (entry,) = read_crontab("0 0 * * * cat%one%two\n")
    assert isinstance(entry, Entry)
    assert (entry.command, entry.stdin) == ("cat", "one\ntwo\n")
