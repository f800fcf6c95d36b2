# SPDX-License-Identifier: Apache-2.0
"""Pages of docs/ as tests play them: the blocks of a section as they stand, and a diff that a page shows,
applied to a program.

    tutorial = section(read("docs/how-to/pytorch.md"), "In ten minutes")
    script = changed(script, *blocks(tutorial, "diff"))
"""
import re


def section(page, title):
    """What stands below this heading, up to the next one of its rank."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^\1 |\Z)", page, re.DOTALL | re.MULTILINE)
    assert found, f"the page has no section {title!r}"
    return found.group(2)


def blocks(text, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def changed(text, diff):
    """The text with the diff's lines taken out and put in; its other lines say where, from the top down."""
    lines, place = text.splitlines(), 0
    for one in diff.splitlines():
        mark, line = one[:1], one[1:]
        if mark == "+":
            lines.insert(place, line)
            place += 1
            continue
        assert line in lines[place:], f"below line {place} the program has no line {line!r}"
        place = lines.index(line, place)
        if mark == "-":
            del lines[place]
        else:
            place += 1
    return "\n".join(lines) + "\n"
