"""The house keeps its shape: imports go down only, start-up is light, and the documents speak the truth."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "clearhead"

# A room may import rooms of a lower floor, and itself. CONTRIBUTING.md, docs/architecture.md and docs/rooms.svg agree.
FLOORS = [
    {"messages"},
    {"errors"},
    {"files", "schema", "units"},
    {"codec", "generation_options", "native"},
    {"nn"},
    {"models", "text", "image"},
    {"hub"},
    {"generate", "zoo"},
    {"retrieval"},
    {"pipeline"},
    {"train", "explain"},
    {"views"},
    {"server", "studies"},
    {"studio"},
    {"cli"},
]
FLOOR = {room: n for n, rooms in enumerate(FLOORS) for room in rooms}
UPWARD_AT_CALL_TIME = {("models", "generate"), ("explain", "views")}  # Model.generate; a finding draws itself


def imports_of(path: Path) -> list[tuple[str, bool]]:
    """(room, whether the import waits inside a function or a TYPE_CHECKING block)."""
    found = []

    def visit(node: ast.AST, waits: bool) -> None:
        for child in ast.iter_child_nodes(node):
            later = waits or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                later = True
            names = []
            if isinstance(child, ast.ImportFrom) and child.module and child.module.startswith("clearhead"):
                parts = child.module.split(".")
                names = [parts[1]] if len(parts) > 1 else [alias.name for alias in child.names]
            elif isinstance(child, ast.Import):
                names = [a.name.split(".")[1] for a in child.names if a.name.startswith("clearhead.")]
            found.extend((name, later) for name in names if name in FLOOR)
            visit(child, later)

    visit(ast.parse(path.read_text()), False)
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_down(path):
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room in ("__init__", "__main__"):
        return
    assert room in FLOOR, f"{room} has no floor: give it one in this test and in docs/architecture.md"
    for other, waits in imports_of(path):
        if other == room or FLOOR[other] < FLOOR[room]:
            continue
        upward = waits and (room, other) in UPWARD_AT_CALL_TIME
        assert upward, f"{path.relative_to(SOURCE)} imports {other}, which is not below {room}"


# The rooms inside train, in the same way: data knows no objective, objectives no loop, the engine no recipe.
TRAIN_FLOORS = [
    {"data", "word_vectors"},
    {"objectives"},
    {"engine"},
    {"recipe"},
    {"recipe_files"},
    {"run"},
    {"__init__"},
]
TRAIN_FLOOR = {room: n for n, rooms in enumerate(TRAIN_FLOORS) for room in rooms}


@pytest.mark.parametrize("path", sorted((SOURCE / "train").rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_inside_train_go_down(path):
    """Whatever form they have: inside a function and under TYPE_CHECKING too."""
    room = path.relative_to(SOURCE / "train").parts[0].removesuffix(".py")
    assert room in TRAIN_FLOOR, f"train/{room} has no floor: give it one in this test"
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            whole = node.module == "clearhead.train"  # from clearhead.train import data
            modules = [f"{node.module}.{alias.name}" for alias in node.names] if whole else [node.module or ""]
        for other in (name.split(".")[2] for name in modules if name.startswith("clearhead.train.")):
            below = other == room or TRAIN_FLOOR[other] < TRAIN_FLOOR[room]
            assert below, f"{path.relative_to(SOURCE)} imports train/{other}, which is not below train/{room}"


def test_every_room_stands():
    rooms = {path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert rooms - {"__init__", "__main__", "__pycache__", "py.typed"} == set(FLOOR)


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_documents_state_this_order(name):
    """As `one` ← `two`, `three` ← …, each floor left of those that may import it."""
    orders = re.findall(r"`\w+`(?:(?:,|\s+←)\s+`\w+`)+", (ROOT / name).read_text())
    orders = [[set(re.findall(r"\w+", floor)) for floor in order.split("←")] for order in orders if "←" in order]
    assert orders == [FLOORS]


def test_the_picture_shows_this_order():
    """Rooms of one floor stand side by side, lower floors below."""
    drawn = re.findall(r'class="name" x="\d+" y="(\d+)">(\w+)<', (ROOT / "docs" / "rooms.svg").read_text())
    heights = sorted({int(y) for y, _ in drawn}, reverse=True)
    assert [{room for y, room in drawn if int(y) == height} for height in heights] == FLOORS


def test_the_doors_that_open_upward_are_told():
    text = (ROOT / "docs" / "architecture.md").read_text()
    doors = re.findall(r"`(\w+)` → `(\w+)`", text[: text.index("## ")])
    assert set(doors) == UPWARD_AT_CALL_TIME


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_file_says_why_it_exists(path):
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert doc, "no docstring"
    assert len(doc.splitlines()[0]) > 20


@pytest.mark.parametrize(
    "code",
    [
        "import clearhead",
        "import clearhead.cli",
        "import clearhead.text",
        "import clearhead.errors",
        "import clearhead.zoo as zoo; assert zoo.cards()",
        "from clearhead.zoo.recipes import recipes; assert recipes()",
        "import clearhead.schema",
        "import clearhead.generation_options",
        "import sys, clearhead.cli as c; sys.argv = ['x', '--help']\ntry: c.main()\nexcept SystemExit: pass",
    ],
)
def test_light_start(code):
    """None of these may pull in torch."""
    check = f"{code}\nimport sys\nassert not {{'torch', 'transformers', 'huggingface_hub'}} & set(sys.modules), 'heavy'"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_core_needs_no_extras():
    """Everything but the web, notebook and test packages: the core runs where those are missing."""
    banned = [
        "transformers",
        "fastapi",
        "uvicorn",
        "starlette",
        "anywidget",
        "sentencepiece",
        "sklearn",
        "yaml",
        "lancedb",
        "pyarrow",
        "ray",
        "PIL",
    ]
    code = (
        f"import sys\nfor name in {banned!r}: sys.modules[name] = None\n"
        "import clearhead as ch\nprint(ch.load('random-gpt2').generate('The robot', max_new_tokens=3))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The robot")


def test_readme_python_runs(tmp_path):
    """Top to bottom, as a reader would type it; the Chinese one has the same code: see below."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S))
    assert code.count("\n") > 20
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "torch.Size([1, 4, 5, 7])" in done.stdout


def test_the_two_readmes_have_the_same_code():
    blocks = [re.findall(r"```(\w*)\n(.*?)```", (ROOT / n).read_text(), re.S) for n in ("README.md", "README.zh-CN.md")]
    without_comments = [
        [(kind, re.sub(r"\s*#.*", "", body)) for kind, body in found if kind in ("sh", "python")] for found in blocks
    ]
    assert without_comments[0] == without_comments[1]


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md", "CONTRIBUTING.md", "docs/architecture.md"])
def test_links_lead_somewhere(name):
    path = ROOT / name
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_architecture_names_real_files():
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = "nn|models|hub|generate|retrieval|text|image|explain|views|zoo|train|studies|server|studio|cli|pipeline"
    for name in set(re.findall(rf"`((?:{rooms})/[\w/]+\.py)`", text)):
        assert (SOURCE / name).exists(), name


def test_the_glossary_tells_the_truth():
    """Both tables have the same rows; every path exists, and every question it sends to is one."""
    from clearhead.explain.questions import QUESTIONS

    tables = (ROOT / "docs" / "glossary.md").read_text().split("## 术语表")
    rows = [[line.split(" | ") for line in table.splitlines() if line.startswith("| **")] for table in tables]
    assert len(rows[0]) > 50 and [row[2:] for row in rows[0]] == [row[2:] for row in rows[1]]
    for path in re.findall(r"`([\w/]+(?:\.py|/))`", "".join("".join(row[2:]) for row in rows[0])):
        assert (SOURCE / path).exists(), path
    for question in re.findall(r"`explain ([\w-]+)`", tables[0]):
        assert question in QUESTIONS, question


@pytest.mark.parametrize("name", ["glossary.md", "generation.md", "explaining.md", "training.md"])
def test_the_documents_use_the_words_people_search_for(name):
    """The field's own terms, which a reader of the papers looks for, beside the plain gloss."""
    terms = {
        "generation.md": ("speculative decoding", "nucleus sampling", "kv cache", "logits processor", "beam search"),
        "explaining.md": ("logit lens", "activation patching", "attribution", "ablation", "induction head"),
        "training.md": ("gradient checkpointing", "gradient clipping", "early stopping", "mfu", "warm-up"),
    }
    text = (ROOT / "docs" / name).read_text().lower()
    for term in terms.get(name) or sum(terms.values(), ()):
        assert term in text, f"{name} does not speak of {term!r}"


def test_headings_name_what_people_search_for():
    headings = "\n".join(
        re.findall(r"^#.*", "\n".join(p.read_text() for p in (ROOT / "docs").glob("*.md")), re.M)
    ).lower()
    for term in (
        "logit lens", "activation patching", "attribution", "speculative decoding", "nucleus sampling", "kv cache",
        "gradient checkpointing", "gradient clipping", "early stopping", "mfu",
    ):  # fmt: skip
        assert term in headings, term
