"""Operates a store at random and says each answer after it came; started to be killed.

Arguments: the database, then what was done in earlier lives and is to be done in this one, as JSON:
seeds, and of earlier ones how many operations took place and how much each sweep among them did.
"""

import json
import random
import sys

from rookhold_store import Store, StoreError, Swept
from rookhold_store.testing import anything_binds
from rookhold_store.testing.model import Model, told
from rookhold_store.testing.traffic import Life, signed


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


database, lives = sys.argv[1], json.loads(sys.argv[2])
model = Model()
for number, (seed, count, swept) in enumerate(lives[:-1]):
    Life(model, random.Random(seed), number).replay(count, swept)
    model.reopen()
store = Store.open(database, binding=anything_binds)
say("open")
life = Life(model, random.Random(lives[-1][0]), len(lives) - 1)
while True:
    group = life.group()
    futures = [store.submit(signed(op, store)) for op in group]
    for op, future in zip(group, futures, strict=True):
        try:
            answer = future.result()
        except StoreError as error:
            answer = error
        wanted = model.apply(op, answer)
        if told(answer) != wanted:
            say(f"wrong: {told(answer)} instead of {wanted} to {op}")
        swept = isinstance(answer, Swept)
        say(f"{answer.jobs_deleted} {answer.events_deleted}" if swept else "-")
