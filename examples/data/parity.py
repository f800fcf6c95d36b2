#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes parity-*.libsvm of digits-*.csv: odd digits against even ones, sparse. A feature is a pixel
together with its right neighbour, both in steps of two; one that is blank with its neighbour is left
out. Run it in this folder."""
import csv

for which in ("train", "test"):
    with open(f"digits-{which}.csv", encoding="ascii") as table, \
            open(f"parity-{which}.libsvm", "w", encoding="ascii") as made:
        for row in csv.DictReader(table):
            pixels = [int(float(value)) for name, value in row.items() if name != "label"]
            words = ["1" if int(row["label"]) % 2 else "-1"]
            for at, pixel in enumerate(pixels):
                neighbour = pixels[at + 1] if at % 8 < 7 else 0
                if pixel or neighbour:
                    words.append(f"{at * 256 + pixel // 2 * 16 + neighbour // 2 + 1}:1")
            made.write(" ".join(words) + "\n")
