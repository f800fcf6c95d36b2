# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: what a person does on it, what strangers cannot do to it, who may see it.

page_browser.mjs holds the stories. Where the machine has no browser the whole test is skipped (77),
and says what to install; cmake/packages-browser.txt lists it for `make test`.
"""
import http.client
import os
import re
import subprocess
import sys
import unittest

from browser import find_tools
from case import Case
from home import REPOSITORY, read
from rest_client import Client


class Page(Case):
    def setUp(self):
        super().setUp()
        self.told = self.home.run("up").stdout
        self.rest = Client(self.home.home)

    def down(self):
        self.home.run("down")
        self.home.assert_nothing_runs()

    def play(self, story, timeout=240):
        environment = dict(self.home.environment, STARLING_URL=self.rest.ready["restUrl"],
                           STARLING_TOKEN=self.rest.token, STARLING_BROWSER=BROWSER,
                           STARLING_WEB_TOOLS=TOOLS,
                           STARLING_CONTROLLER=self.home.program("starling-controller"))
        done = subprocess.run(["node", os.path.join(REPOSITORY, "tests/e2e/page_browser.mjs"), story],
                              env=environment, capture_output=True, text=True, timeout=timeout,
                              cwd=REPOSITORY, check=False)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr + self.home.describe())
        self.down()


class Stories(Page):
    def test_a_job_is_submitted_watched_hurt_scaled_suspended_resumed_and_deleted(self):
        self.play("life")

    def test_what_strangers_write_is_text(self):
        self.play("strangers")

    def test_what_must_not_be_is_seen(self):
        self.play("control")

    def test_who_may_see_it_and_what_a_broken_connection_does(self):
        self.play("connection")


class Service(Page):
    def test_up_gives_the_token_to_no_file(self):
        self.assertIn(f'page: {self.rest.ready["restUrl"]}/ (its token is in ', self.told)
        self.assertNotIn(self.rest.token, self.told)
        self.down()

    def test_files_of_the_page_are_for_everybody_who_names_this_host(self):
        page = self.rest.ask("GET", "/", Authorization=None)
        self.assertEqual(200, page.status)
        self.assertIn("default-src 'none'", page.headers["Content-Security-Policy"])
        self.assertNotIn(self.rest.token, page.body.decode())
        again = self.rest.ask("GET", "/", If_None_Match=page.headers["ETag"])
        self.assertEqual((304, b""), (again.status, again.body))
        for host in ("evil.example", f"evil.example:{self.rest.port}", "127.0.0.1:1"):
            self.assertEqual(403, self.rest.ask("GET", "/page.js", Host=host).status)
        for path in ("/index.html", "/../page.js", "/%2e%2e/api.token", "/page.js/", "//page.js"):
            connection = http.client.HTTPConnection("127.0.0.1", self.rest.port, timeout=10)
            connection.request("GET", path)
            self.assertEqual(404, connection.getresponse().status, path)
            connection.close()
        self.down()


class Pictures(Page):
    def runTest(self):
        self.play("pictures")


class HowTo(Case):
    def test_the_commands_of_the_page_about_it_work_as_they_stand(self):
        text = read(os.path.join(REPOSITORY, "docs/how-to/page.md"))
        blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        self.assertEqual(2, len(blocks))
        environment = dict(self.home.environment, PATH=os.path.dirname(
            self.home.program("starling")) + ":" + os.environ["PATH"])
        done = subprocess.run(["bash", "-c", "set -eo pipefail\n" + "\n".join(blocks)],
                              cwd=REPOSITORY, env=environment, capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr + self.home.describe())
        self.assertIn("page: http://127.0.0.1:", done.stdout)
        self.home.assert_nothing_runs()


if __name__ == "__main__":
    BROWSER, TOOLS = find_tools()
    if sys.argv[1:] == ["--pictures"]:  # those of docs/, anew
        sys.exit(not unittest.TextTestRunner().run(Pictures()).wasSuccessful())
    unittest.main(argv=sys.argv[:1] + (sys.argv[1:] or ["Stories", "Service", "HowTo"]), verbosity=2)
