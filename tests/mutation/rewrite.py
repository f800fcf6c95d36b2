# SPDX-License-Identifier: Apache-2.0
"""Rewrites a C++ source so that it holds all of its mutants, of which one is chosen at run time.

Read with libclang. What becomes a mutant:
  negate     the condition of an if, while or ?:
  operand    one operand of && or || counts for nothing
  relation   < becomes <=, == becomes !=, and so on
  constant   an integer is one more
  delete     a statement, or a return, break or continue under an if, is left out
  return     the returned bool is the opposite

Left out, and counted: constexpr functions, conditions that declare a variable, and what a macro
makes (except RETURN_IF_ERROR, which may be deleted).
"""
import dataclasses
import re

from clang.cindex import CursorKind, Index, TranslationUnit, TypeKind

COMPARE = {"<": ("Less", "<="), "<=": ("LessEqual", "<"), ">": ("Greater", ">="), ">=": ("GreaterEqual", ">"),
           "==": ("Equal", "!="), "!=": ("Unequal", "==")}
FUNCTIONS = {CursorKind.FUNCTION_DECL, CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR, CursorKind.DESTRUCTOR,
             CursorKind.FUNCTION_TEMPLATE, CursorKind.CONVERSION_FUNCTION}
LOOPS = {CursorKind.FOR_STMT, CursorKind.WHILE_STMT, CursorKind.DO_STMT, CursorKind.CXX_FOR_RANGE_STMT}
JUMPS = {CursorKind.CONTINUE_STMT, CursorKind.BREAK_STMT}
NOT_DELETED = JUMPS | LOOPS | {
    CursorKind.COMPOUND_STMT, CursorKind.DECL_STMT, CursorKind.RETURN_STMT, CursorKind.IF_STMT,
    CursorKind.SWITCH_STMT, CursorKind.CASE_STMT, CursorKind.DEFAULT_STMT, CursorKind.NULL_STMT,
    CursorKind.LAMBDA_EXPR, CursorKind.CXX_TRY_STMT}


@dataclasses.dataclass
class Mutant:
    file: str
    function: str
    kind: str
    text: str
    line: int
    number: int = 1  # of those that are equal in all this
    id: int = -1

    def key(self):
        return f"{self.file} {self.function}\n  {self.kind} {self.text}" + (f" #{self.number}" if self.number > 1 else "")


class Rewriter:
    def __init__(self, path, name, arguments, first_id):
        self.name = name
        self.source = path.read_bytes()
        self.mutants = []
        self.first_id = first_id
        self.skipped = {}
        self.wraps = []  # (start, end, prefix, suffix), outer ones first
        self.replaced = []  # (start, end, text)
        self.function = ""
        unit = Index.create().parse(str(path), args=arguments,
                                    options=TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        errors = [str(d) for d in unit.diagnostics if d.severity >= 3]
        if errors:
            raise SystemExit(f"{name}: libclang cannot read it:\n" + "\n".join(errors[:5]))
        self.path = str(path)
        self.macros = []
        for cursor in unit.cursor.get_children():
            if cursor.kind == CursorKind.MACRO_INSTANTIATION and self.here(cursor):
                self.macros.append(self.range(cursor))
        self.macros.sort()
        for cursor in unit.cursor.get_children():
            if self.here(cursor):
                self.declaration(cursor)
        self.return_if_error()

    # Where things are.

    def here(self, cursor):
        file = cursor.location.file
        return file is not None and file.name == self.path

    @staticmethod
    def range(cursor):
        return cursor.extent.start.offset, cursor.extent.end.offset

    def text(self, start, end):
        return " ".join(self.source[start:end].decode().split())

    # Whether an edit around it would be inside of what a macro takes or makes.
    def of_macro(self, start, end):
        return any((a <= start and end <= b) or a < start < b or a < end < b for a, b in self.macros)

    def skip(self, why):
        self.skipped[why] = self.skipped.get(why, 0) + 1

    def add(self, kind, text, start):
        if len(text) > 120:
            text = text[:117] + "..."
        mutant = Mutant(self.name, self.function, kind, text, self.source.count(b"\n", 0, start) + 1)
        mutant.number += sum(m.key().split(" #")[0] == mutant.key() for m in self.mutants)
        mutant.id = self.first_id + len(self.mutants)
        self.mutants.append(mutant)
        return mutant.id

    # What there is.

    def declaration(self, cursor):
        if cursor.kind in FUNCTIONS:
            self.function_body(cursor)
        elif cursor.kind in (CursorKind.NAMESPACE, CursorKind.CLASS_DECL, CursorKind.STRUCT_DECL,
                             CursorKind.CLASS_TEMPLATE, CursorKind.UNEXPOSED_DECL, CursorKind.LINKAGE_SPEC):
            for child in cursor.get_children():
                if self.here(child):
                    self.declaration(child)

    def function_body(self, cursor):
        body = [c for c in cursor.get_children() if c.kind == CursorKind.COMPOUND_STMT]
        if not body:
            return
        head = self.text(cursor.extent.start.offset, body[-1].extent.start.offset)
        if re.search(r"\b(constexpr|consteval)\b", head):
            self.skip("constexpr functions")
            return
        parent = cursor.semantic_parent
        of_class = parent is not None and parent.kind in (
            CursorKind.CLASS_DECL, CursorKind.STRUCT_DECL, CursorKind.CLASS_TEMPLATE)
        outer = self.function
        self.function = (parent.spelling + "::" if of_class else "") + cursor.spelling.split("<")[0]
        self.statements(body[-1], last=True)
        for child in cursor.get_children():
            if child.kind not in (CursorKind.COMPOUND_STMT, CursorKind.PARM_DECL):
                self.expression(child, parent=cursor)
        self.function = outer

    def statements(self, compound, last=False, guarded=False):
        children = list(compound.get_children())
        for child in children:
            self.statement(child, last=last and child == children[-1], guarded=guarded)

    # `guarded`: it stands under an if, so that the function goes on behind it.
    def statement(self, cursor, last=False, guarded=False):
        kind = cursor.kind
        if kind == CursorKind.COMPOUND_STMT:
            self.statements(cursor, last=False, guarded=guarded)
        elif kind == CursorKind.IF_STMT:
            self.if_statement(cursor)
        elif kind in LOOPS:
            self.loop(cursor)
        elif kind == CursorKind.SWITCH_STMT:
            for child in cursor.get_children():
                if child.kind == CursorKind.COMPOUND_STMT:
                    self.statements(child)
                else:
                    self.expression(child, parent=cursor)
        elif kind in (CursorKind.CASE_STMT, CursorKind.DEFAULT_STMT):
            children = list(cursor.get_children())
            if children:
                self.statement(children[-1])
        elif kind == CursorKind.DECL_STMT:
            self.expression(cursor, parent=cursor)
        elif kind in JUMPS or kind == CursorKind.RETURN_STMT:
            if guarded and not (last and kind == CursorKind.RETURN_STMT):
                self.delete(cursor)
            if kind == CursorKind.RETURN_STMT:
                self.returned(cursor)
        elif kind not in NOT_DELETED:
            self.delete(cursor)
            self.expression(cursor, parent=cursor)

    def delete(self, cursor):
        start, end = self.range(cursor)
        if self.of_macro(start, end):
            return
        semicolon = re.compile(rb"\s*;").match(self.source, end)
        if semicolon is None:
            return
        id_ = self.add("delete", self.text(start, end), start)
        self.wraps.append((start, semicolon.end(), f"{{ if (!mutant::On({id_})) ", " }"))

    def returned(self, cursor):
        for child in cursor.get_children():
            start, end = self.range(child)
            plain = child.type.get_canonical().kind == TypeKind.BOOL and self.operator_of(child)[0] not in ("==", "!=")
            if plain and not self.of_macro(start, end):
                id_ = self.add("return", self.text(start, end), start)
                self.wraps.append((start, end, f"mutant::Not({id_}, bool(", "))"))
            self.expression(child, parent=cursor)

    # The parentheses of an if or a while, as offsets.
    def parentheses(self, cursor):
        start, _ = self.range(cursor)
        at = self.source.index(b"(", start)
        depth = 0
        for i in range(at, len(self.source)):
            depth += {40: 1, 41: -1}.get(self.source[i], 0)
            if depth == 0:
                return at + 1, i
        raise SystemExit(f"{self.name}: no end of a condition")

    def condition(self, cursor, children):
        if any(c.kind == CursorKind.VAR_DECL for c in children):
            self.skip("conditions that declare a variable")
        elif children:
            self.negate(children[-1])
        for child in children:
            self.expression(child, parent=cursor)

    def negate(self, condition):
        start, end = self.range(condition)
        if self.of_macro(start, end) or self.operator_of(condition)[0] in ("==", "!="):
            return  # the relation's own mutant is the same
        id_ = self.add("negate", self.text(start, end), start)
        self.wraps.append((start, end, f"mutant::Not({id_}, bool(", "))"))

    def if_statement(self, cursor):
        head = self.source[self.range(cursor)[0]:].split(b"(", 1)[0]
        opening, closing = self.parentheses(cursor)
        children = list(cursor.get_children())
        inside = [c for c in children if opening <= self.range(c)[0] < closing]
        branches = [c for c in children if self.range(c)[0] >= closing]
        if b"constexpr" not in head:
            self.condition(cursor, inside)
        for branch in branches:
            self.statement(branch, guarded=len(branches) == 1)

    def loop(self, cursor):
        children = list(cursor.get_children())
        body = children[-1]
        if cursor.kind == CursorKind.DO_STMT:
            body = children[0]
        if cursor.kind == CursorKind.WHILE_STMT:
            self.condition(cursor, children[:-1])
        else:
            for child in children:
                if child != body:
                    self.expression(child, parent=cursor)
        self.statement(body)

    # (operator, left, right) of a binary operator, also one that is a function; else ("", None, None).
    def operator_of(self, cursor):
        while cursor.kind == CursorKind.UNEXPOSED_EXPR:
            inner = list(cursor.get_children())
            if len(inner) != 1 or self.range(inner[0]) != self.range(cursor):
                break
            cursor = inner[0]
        if cursor.kind == CursorKind.BINARY_OPERATOR:
            sides = list(cursor.get_children())
        elif cursor.kind == CursorKind.CALL_EXPR and cursor.spelling.startswith("operator"):
            sides = list(cursor.get_children())
            if len(sides) == 3:
                sides = [sides[0], sides[2]]
        elif cursor.kind == CursorKind.UNEXPOSED_EXPR:  # rewritten: a != b as !(a == b)
            sides = list(cursor.get_children())
        else:
            return "", None, None
        if len(sides) != 2:
            return "", None, None
        left, right = sides
        between = self.source[self.range(left)[1]:self.range(right)[0]].decode().strip()
        if self.range(left)[0] < self.range(cursor)[0] or not re.fullmatch(r"[<>=!&|]{1,2}", between):
            return "", None, None
        return between, left, right

    # `parent`: nothing, where an integer may not become an expression (in braces it would narrow).
    def expression(self, cursor, parent):
        kind = cursor.kind
        if kind == CursorKind.LAMBDA_EXPR:
            self.lambda_expression(cursor)
            return
        start, end = self.range(cursor)
        declares = kind in (CursorKind.DECL_STMT, CursorKind.VAR_DECL)
        fixed = kind == CursorKind.STATIC_ASSERT or \
            (kind == CursorKind.VAR_DECL and cursor.type.kind == TypeKind.CONSTANTARRAY)
        if fixed or (declares and re.match(r"(static )?constexpr\b", self.text(start, end))):
            self.skip("constants")
            return
        operator, left, right = self.operator_of(cursor)
        if self.of_macro(start, end):
            operator = ""
        if operator in ("&&", "||"):
            for side in (left, right):
                if self.operator_of(side)[0] != operator:
                    self.operand(operator, side)
        if operator in COMPARE:
            self.relation(operator, left, right, start, end)
        if operator in COMPARE or operator in ("&&", "||"):
            self.expression(left, cursor)
            self.expression(right, cursor)
            return
        children = list(cursor.get_children())
        if kind == CursorKind.VAR_DECL:  # what stands before the name is its type
            children = [child for child in children if self.range(child)[0] >= cursor.location.offset]
        if kind == CursorKind.CONDITIONAL_OPERATOR and not self.of_macro(start, end):
            self.negate(children[0])
        if kind == CursorKind.INTEGER_LITERAL and parent is not None and not self.of_macro(start, end):
            self.constant(cursor, parent)
        braces = kind == CursorKind.INIT_LIST_EXPR or \
            (kind == CursorKind.CALL_EXPR and self.source[end - 1:end] == b"}")
        through = parent is None and kind in (
            CursorKind.UNEXPOSED_EXPR, CursorKind.PAREN_EXPR, CursorKind.UNARY_OPERATOR, CursorKind.BINARY_OPERATOR,
            CursorKind.CONDITIONAL_OPERATOR)
        for child in children:
            if self.range(child)[0] >= start:
                self.expression(child, None if braces or through else cursor)

    def lambda_expression(self, cursor):
        for child in cursor.get_children():
            if child.kind == CursorKind.COMPOUND_STMT:
                self.statements(child, last=True)
            elif child.kind != CursorKind.PARM_DECL:
                self.expression(child, parent=None)

    def operand(self, operator, side):
        start, end = self.range(side)
        if self.of_macro(start, end):
            return
        id_ = self.add("operand", self.text(start, end), start)
        if operator == "&&":
            self.wraps.append((start, end, f"(mutant::On({id_}) || (", "))"))
        else:
            self.wraps.append((start, end, f"(!mutant::On({id_}) && (", "))"))

    def relation(self, operator, left, right, start, end):
        name, other = COMPARE[operator]
        _, left_end = self.range(left)
        right_start, _ = self.range(right)
        id_ = self.add("relation", self.text(start, left_end) + f" {operator} -> {other} " + self.text(right_start, end),
                       start)
        self.wraps.append((start, end, f"mutant::{name}({id_}, ", ")"))
        self.replaced.append((left_end, right_start, ", "))

    def constant(self, cursor, parent):
        start, end = self.range(cursor)
        if parent.kind in (CursorKind.DECL_REF_EXPR, CursorKind.MEMBER_REF_EXPR, CursorKind.CASE_STMT,
                           CursorKind.OVERLOADED_DECL_REF) or parent.type.kind == TypeKind.CONSTANTARRAY:
            return
        text = self.source[start:end].decode()
        if not re.fullmatch(r"(0x)?[0-9a-fA-F']+[uUlL]*", text):
            return
        a, b = self.range(parent)
        id_ = self.add("constant", f"{text} + 1 in " + self.text(a, b), start)
        self.wraps.append((start, end, "(", f" + mutant::On({id_}))"))

    def return_if_error(self):
        for match in re.finditer(rb"^ *(RETURN_IF_ERROR\()", self.source, re.MULTILINE):
            start = match.start(1)
            depth, at = 0, match.end(1) - 1
            while True:
                depth += {40: 1, 41: -1}.get(self.source[at], 0)
                at += 1
                if depth == 0:
                    break
            if self.source[at:at + 1] != b";":
                continue
            self.function = self.enclosing(start)
            id_ = self.add("delete", self.text(start, at), start)
            self.wraps.append((start, at + 1, f"{{ if (!mutant::On({id_})) ", " }"))

    def enclosing(self, offset):
        line = self.source.count(b"\n", 0, offset) + 1
        before = [m for m in self.mutants if m.line <= line]
        return max(before, key=lambda m: m.line).function if before else ""

    # The rewritten source.
    def render(self):
        at = {}
        for order, (start, end, prefix, suffix) in enumerate(self.wraps):
            at.setdefault(start, ([], []))[1].append((order, prefix))
            at.setdefault(end, ([], []))[0].append((-order, suffix))
        skip = {start: (end, text) for start, end, text in self.replaced}
        out, position = [], 0
        for offset in sorted(set(at) | set(skip)):
            if offset < position:
                raise SystemExit(f"{self.name}: edits overlap at {self.text(offset, offset + 40)}")
            out.append(self.source[position:offset].decode())
            suffixes, prefixes = at.get(offset, ([], []))
            out += [text for _, text in sorted(suffixes)]
            if offset in skip:
                end, text = skip[offset]
                out.append(text)
                position = end
                if prefixes:
                    raise SystemExit(f"{self.name}: a prefix where an operator stands")
            else:
                position = offset
            out += [text for _, text in sorted(prefixes)]
        out.append(self.source[position:].decode())
        return "".join(out)
