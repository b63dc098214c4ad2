#!/usr/bin/env python3
"""Reports import cycles between the modules of each crate.

Usage: scripts/cycles.py [--root DIR] [CRATE...]      (default: every crate in crates/)

A module imports another if its code, outside of tests, names an item of it: by `use`, or by a path. An item that is
re-exported counts for the file that defines it, so a `mod.rs` that only re-exports its children imports nothing, and a
child that takes a sibling's item from its parent imports the sibling.

Modules are compared with their siblings, at each level of the module tree, and a folder counts as one module there.
Imports between a module and those inside it are not reported: they are parts of one unit.
Exits with 1 if there is a cycle.
"""

import argparse
import collections
import pathlib
import re
import sys

ITEM = re.compile(r"\b(?:fn|struct|enum|union|trait|const|static|type|macro_rules!)\s+(?:mut\s+)?([A-Za-z_]\w*)")
PATH = re.compile(r"(?<![\w$:])(\$?crate|self|super|[A-Za-z_]\w*)((?:\s*::\s*[A-Za-z_]\w*)+)")


def blank(text):
    """Replaces comments and literals by spaces, so that offsets and lines stay."""
    token = re.compile(
        r"""//[^\n]*|/\*|b?r(?P<hashes>\#*)"|b?"(?:\\.|[^"\\])*"|b?'(?:\\(?:x..|u\{[^}]*\}|.)|[^'\\\n])'""", re.S
    )
    out, at = [], 0
    while found := token.search(text, at):
        end = found.end()
        if found.group().startswith("/*"):
            depth = 1
            while depth and end < len(text):
                pair = text[end : end + 2]
                depth += {"/*": 1, "*/": -1}.get(pair, 0)
                end += 2 if pair in ("/*", "*/") else 1
        elif found.group("hashes") is not None:
            if re.match(r"\w", text[found.start() - 1 : found.start()]):
                out.append(text[at:end])
                at = end
                continue
            closing = text.find('"' + found.group("hashes"), end)
            end = len(text) if closing < 0 else closing + 1 + len(found.group("hashes"))
        out.append(text[at : found.start()])
        out.append(re.sub(r"[^\n]", " ", text[found.start() : end]))
        at = end
    return "".join(out) + text[at:]


def closing(text, at):
    """The index after the bracket that closes the one at `at`."""
    depth = 0
    for index in range(at, len(text)):
        depth += {"{": 1, "[": 1, "(": 1, "}": -1, "]": -1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return index + 1
    return len(text)


def end_of_item(text, at):
    """The index after the item or statement that starts at `at`, including its attributes."""
    while found := re.compile(r"\s*#!?\[").match(text, at):
        at = closing(text, found.end() - 1)
    while at < len(text):
        if text[at] in ";,":
            return at + 1
        if text[at] == "}":
            return at
        if text[at] in "([":
            at = closing(text, at)
        elif text[at] == "{":
            end = closing(text, at)
            # `use a::{b};` and `const A: B = B {};` go on; other items end with their block.
            return end + 1 if text[end : end + 1] == ";" else end
        else:
            at += 1
    return at


def without_tests(text):
    """Blanks every item that is compiled for tests only."""
    for found in reversed(list(re.finditer(r"#\[cfg\(", text))):
        end = closing(text, found.start() + 1)
        condition = re.sub(r"\bnot\([^()]*\)", "", text[found.start() : end])
        if re.search(r"\btest\b", condition) and not re.search(r"\bany\(", condition):
            stop = end_of_item(text, end)
            text = text[: found.start()] + re.sub(r"[^\n]", " ", text[found.start() : stop]) + text[stop:]
    return text


def use_tree(text, prefix=()):
    """Yields (path, name) for each leaf of the tree of a `use`; the name is `*` for a glob."""
    text = text.strip()
    if text.startswith("{"):
        depth, start, body = 0, 0, text[1:-1]
        for at, char in enumerate(body + ","):
            depth += {"{": 1, "}": -1}.get(char, 0)
            if char == "," and depth == 0:
                if body[start:at].strip():
                    yield from use_tree(body[start:at], prefix)
                start = at + 1
        return
    head, colons, rest = text.partition("::")
    if colons:
        yield from use_tree(rest, prefix + ((head.strip(),) if head.strip() else ()))
        return
    path, _, alias = (part.strip() for part in text.partition(" as "))
    full = prefix if path == "self" and prefix else prefix + (path,)
    yield full, alias or ("*" if path == "*" else full[-1])


class Module:
    def __init__(self, file, parent, name):
        self.file, self.parent, self.name = file, parent, name
        self.children, self.items, self.uses = {}, set(), []
        # The code without comments, literals, tests, `use` and inner modules, and where in the file it starts.
        self.text, self.start = "", 0

    def root(self):
        return self.parent.root() if self.parent else self

    def ancestor_with(self, path):
        """The module that `path` starts from, and what is left of it."""
        module = self
        path = list(path)
        if path[0].lstrip("$") == "crate":
            return self.root(), path[1:]
        while path and path[0] in ("self", "super"):
            module = module.parent if path[0] == "super" and module.parent else module
            path = path[1:]
        return module, path


def parse(file, parent, name, crate):
    """Reads a file and the modules that it declares."""
    source = file.read_text()
    text = without_tests(blank(source))
    module = Module(file, parent, name)
    crate.append(module)
    folder = file.parent if file.name in ("mod.rs", "lib.rs", "main.rs") or parent is None else file.parent / file.stem
    fill(module, text, 0, folder, source, crate)
    return module


def fill(module, text, start, folder, source, crate):
    """Fills a module from the text between its braces; `start` is the offset of that text in the file."""
    shallow = list(text)
    depth = 0
    for at, char in enumerate(text):
        depth -= char == "}"
        if depth > 0:
            shallow[at] = "\n" if char == "\n" else " "
        depth += char == "{"
    module.items = {found.group(1) for found in ITEM.finditer("".join(shallow))}
    for found in reversed(list(re.finditer(r"\bmod\s+([A-Za-z_]\w*)\s*([;{])", text))):
        name = found.group(1)
        if found.group(2) == "{":
            end = closing(text, found.end() - 1)
            child = Module(module.file, module, name)
            crate.append(child)
            fill(child, text[found.end() : end - 1], start + found.end(), folder / name, source, crate)
            text = text[: found.end()] + re.sub(r"[^\n]", " ", text[found.end() : end]) + text[end:]
        else:
            options = [folder / f"{name}.rs", folder / name / "mod.rs"]
            path = next((option for option in options if option.is_file()), None)
            if path is None:
                continue
            child = parse(path, module, name, crate)
        module.children[name] = child
    # A tree may hold braces, so a `use` ends at its semicolon.
    for found in reversed(list(re.finditer(r"(\bpub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);", text))):
        line = source.count("\n", 0, start + found.start()) + 1
        for path, name in use_tree(found.group(2)):
            module.uses.append((path, name, bool(found.group(1)), line))
        text = text[: found.start()] + re.sub(r"[^\n]", " ", found.group()) + text[found.end() :]
    module.text, module.start = text, start


def resolve(module, path, seen=()):
    """The file that defines what `path` names, seen from `module`; `None` for another crate's."""
    first = path[0].lstrip("$")
    if first not in ("crate", "self", "super"):
        target = module
        if first not in module.children:
            imported = [use for use in module.uses if use[1] == first]
            if not imported or (module, first) in seen:
                return module.file if first in module.items else None
            return resolve(module, imported[0][0] + tuple(path[1:]), seen + ((module, first),))
        path = list(path)
    else:
        target, path = module.ancestor_with(path)
    while path and path[0] in target.children:
        target, path = target.children[path[0]], path[1:]
    if not path or path[0] == "*" or path[0] in target.items:
        return target.file
    if (target, path[0]) in seen:
        return target.file
    for there, name, _, _ in target.uses:
        if name == path[0]:
            return resolve(target, there + tuple(path[1:]), seen + ((target, path[0]),))
    for there, name, _, _ in target.uses:
        if name == "*":
            inner = resolve_glob(target, there, path, seen)
            if inner:
                return inner
    return target.file


def resolve_glob(target, there, path, seen):
    """As `resolve`, through one `pub use there::*`."""
    relative = there[0].lstrip("$") not in ("crate", "self", "super")
    module, rest = (target, there[:-1]) if relative else target.ancestor_with(there[:-1])
    for part in rest:
        if part not in module.children:
            return None
        module = module.children[part]
    if module is target or not (path[0] in module.items or any(use[1] in (path[0], "*") for use in module.uses)):
        return None
    return resolve(module, ("self",) + tuple(path), seen + ((target, path[0]),))


def imports(modules):
    """Yields (importing file, imported file, line, what); the imported file is `None` for another crate's item."""
    for module in modules:
        used = set(re.findall(r"[A-Za-z_]\w*", module.text))
        modules_in_scope = set(module.children)
        for path, name, public, line in module.uses:
            if name != "*" and names_module(module, path):
                # The paths below say which of its items are used.
                modules_in_scope.add(name)
            elif not public or name in used:
                yield module.file, resolve(module, path), line, "::".join(path)
        for found in PATH.finditer(module.text):
            path = (found.group(1),) + tuple(re.split(r"\s*::\s*", found.group(2).strip())[1:])
            if path[0].lstrip("$") in ("crate", "self", "super") or path[0] in modules_in_scope:
                line = module.file.read_text().count("\n", 0, module.start + found.start()) + 1
                yield module.file, resolve(module, path), line, "::".join(path)


def names_module(module, path):
    """True if the path names a module of this crate."""
    target, rest = module, list(path)
    if rest[0].lstrip("$") in ("crate", "self", "super"):
        target, rest = module.ancestor_with(rest)
    for part in rest:
        if part not in target.children:
            return False
        target = target.children[part]
    return True


def cycles(edges):
    """The shortest cycle through each import, each once, from its first file by name."""
    found = {}
    for start in sorted(edges):
        for first in edges[start]:
            before, queue = {first: None}, collections.deque([first])
            while queue and start not in before:
                node = queue.popleft()
                for after in edges.get(node, ()):
                    if after not in before:
                        before[after] = node
                        queue.append(after)
            if start in before:
                chain, node = [start], before[start]
                while node is not None:
                    chain.insert(1, node)
                    node = before[node]
                first_by_name = chain.index(min(chain))
                chain = chain[first_by_name:] + chain[: first_by_name + 1]
                found.setdefault(frozenset(chain), chain)
    return sorted(found.values(), key=lambda chain: (len(chain), chain))


def lineage(files):
    """For each file, the files of its module and of those around it, outermost first."""
    found = {}
    for module in files:
        chain, at = [], module
        while at:
            if at.file not in chain:
                chain.insert(0, at.file)
            at = at.parent
        found.setdefault(module.file, chain)
    return found


def graph(root, name):
    """The imports between siblings below a crate's root file: {importing: {imported: (file, line, what)}}."""
    modules = []
    parse(root, None, name, modules)
    chains = lineage(modules)
    edges = collections.defaultdict(dict)
    for importing, imported, line, what in imports(modules):
        if imported is None:
            continue
        pairs = zip(chains[importing], chains[imported])
        siblings = next(((one, other) for one, other in pairs if one != other), None)
        if siblings:
            edges[siblings[0]].setdefault(siblings[1], (importing, line, what))
    return edges


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("crates", nargs="*", metavar="CRATE")
    given = parser.parse_args()
    every = [folder.name for folder in sorted((given.root / "crates").iterdir())]
    count = 0
    for name in given.crates or every:
        folder = given.root / "crates" / name
        if not (folder / "Cargo.toml").is_file():
            sys.exit(f"error: crates/{name} is not a crate; there are {', '.join(every)}")
        named = re.findall(r'^path = "(src/[^"]+)"', (folder / "Cargo.toml").read_text(), re.M)
        roots = [folder / path for path in dict.fromkeys(["src/lib.rs", "src/main.rs", *named])]
        for root in filter(pathlib.Path.is_file, roots):
            edges = graph(root, name)
            for chain in cycles(edges):
                count += 1
                print("cycle: " + " -> ".join(str(file.relative_to(given.root)) for file in chain))
                for importing, imported in zip(chain, chain[1:]):
                    file, line, what = edges[importing][imported]
                    print(f"    {file.relative_to(given.root)}:{line} imports {what}")
    if count:
        print(
            f"{count} import cycle{'s' if count > 1 else ''}: move what both modules need into a third one that imports "
            "neither, or pass it as an argument."
        )
    return 1 if count else 0


sys.exit(main())
