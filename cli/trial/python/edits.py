# Text that keeps a remedy in the program: insertions into files of the user's own, none where it is not certain.


# Insertions by call; with the code object, whose identity stays.
CALLS = {}


class Source:
    """A file of the user's, as Python read it."""

    def __init__(self, file):
        self.file = os.path.realpath(file)
        with open(self.file, "rb") as whole:
            self.text = whole.read().decode("utf-8")
        self.lines = self.text.encode().split(b"\n")
        self.tree = ast.parse(self.text)

    def insertion(self, line, column, text):
        return {"file": self.file, "line": line, "column": column, "insert": text}

    def with_(self, insertions):
        """The tree of the file with these insertions."""
        lines = list(self.lines)
        for one in sorted(insertions, key=lambda one: (one["line"], one["column"]), reverse=True):
            line = lines[one["line"] - 1]
            lines[one["line"] - 1] = line[: one["column"]] + one["insert"].encode() + line[one["column"] :]
        return ast.parse(b"\n".join(lines))


def in_call(frame, name, arguments):
    """Insertions that add keyword arguments, as text by name, to the call of the function or class `name` that `frame` is at."""
    code = frame.f_code
    place = id(code), frame.f_lasti, *arguments
    if place not in CALLS:
        CALLS[place] = code, _in_call(code, frame.f_lasti, name, frame.f_globals, arguments)
    return CALLS[place][1]


def _in_call(code, at, name, known, arguments):
    # Python before 3.11 does not know the columns of a call.
    if not own_code(code.co_filename) or not hasattr(code, "co_positions"):
        return None
    _, end, _, end_column = list(code.co_positions())[at // 2]
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        source = Source(code.co_filename)
        # No two calls end with the same parenthesis.
        call = next((node for node in calls(source.tree) if (node.end_lineno, node.end_col_offset) == (end, end_column)), None)
        if call is None or not is_named(call.func, name, code, known) or any(keyword.arg in (None, *arguments) for keyword in call.keywords):
            return None
        text = ", ".join(f"{name}={value}" for name, value in arguments.items())
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        last = max(((node.end_lineno, node.end_col_offset) for node in given), default=None)
        close = (end, end_column - 1)
        ways = [[(*close, text)]] if last is None else [[(*last, f", {text}")], [(*close, f", {text}")], [(*close, f" {text}")]]
        if len(given) == 1 and isinstance(given[0], ast.GeneratorExp):
            # It shares the parentheses of the call.
            ways = [[(given[0].lineno, given[0].col_offset, "("), (*close, f"), {text}")], *ways[1:]]
        more = ast.parse(f"f({text})", mode="eval").body.keywords
        expected = ast.dump(ast.Call(call.func, call.args, [*call.keywords, *more]))
        for way in ways:
            insertions = [source.insertion(*one) for one in way]
            with contextlib.suppress(SyntaxError):
                now = [ast.dump(node) for node in calls(source.with_(insertions))]
                if now.count(expected) == 1 + sum(ast.dump(node) == expected for node in calls(source.tree)):
                    return insertions
    return None


def is_named(called, name, code, known):
    """True if this expression is `name`: not another function that calls it, as map() does."""
    if isinstance(called, ast.Attribute):
        return called.attr in (name, "__init__")
    if not isinstance(called, ast.Name):
        return False
    if called.id in code.co_varnames + code.co_cellvars + code.co_freevars:
        # Before Python 3.13 reading the locals of a frame keeps them alive until its function returns.
        return called.id == name
    value = known.get(called.id)
    return name in [getattr(one, "__name__", None) for one in getattr(value, "__mro__", (value,))]


def calls(tree):
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def after_import(line):
    """The insertion of a line after the import of torch at the top level of the program's script."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if not isinstance(file, str) or not own_code(file):
        return None
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        source = Source(file)
        for node in source.tree.body:
            names = [name for name in getattr(node, "names", ()) if isinstance(node, ast.Import) and name.name == "torch"]
            rest = source.lines[node.end_lineno - 1][node.end_col_offset :].strip()
            if names and (not rest or rest.startswith(b"#")):
                text = line.replace("torch.", f"{names[0].asname or 'torch'}.")
                whole = source.lines[node.end_lineno - 1]
                column = len(whole.rstrip(b"\r"))
                insertions = [source.insertion(node.end_lineno, column, "\r\n"[column == len(whole) :] + text)]
                source.with_(insertions)
                return insertions
    return None
