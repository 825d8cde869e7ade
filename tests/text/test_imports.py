"""The room opens quickly: nothing heavy is imported before it is needed, and some things never."""

import subprocess
import sys

import pytest

CODE = """
import sys
from clearhead.text import TextStream, load_tokenizer
tok = load_tokenizer(sys.argv[1])
stream = TextStream(tok)
for index in tok("the man", return_tensors="np")["input_ids"][0]:
    stream.push(int(index))
tok.save(sys.argv[2])
print([name for name in ("torch", "transformers", "sentencepiece", "rich") if name in sys.modules])
"""


def test_tokenizing_imports_nothing_heavy(trained, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(trained["bpe"]), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["transformers", "sentencepiece"])
def test_packages_for_tests_are_not_needed_at_runtime(trained, name):
    code = f"import sys; sys.modules[{name!r}] = None\n" + CODE.replace("tok.save(sys.argv[2])\n", "")
    subprocess.run([sys.executable, "-c", code, str(trained["unigram"])], check=True, capture_output=True)
