"""The topic exchange: keys are words between dots, `*` stands for one word and `#` for any number.

The patterns form a trie. A key is matched by walking all nodes it may be at, word by word, as a
nondeterministic automaton does: `#` is a node that is entered for nothing and stays where it is on
any word. A node is entered at most once per word, so patterns with many `#` cost no more than the
nodes they have, and the number of bindings beside the key's paths costs nothing.

The empty key has no words at all, not one empty word; dots at either end, or two in a row, do
enclose an empty word. Both are so for keys and for patterns.
"""

cimport cython
from libc.stdint cimport uint64_t


@cython.final
cdef class _Entry:
    """One destination of one pattern."""

    cdef long long count   # bindings
    cdef tuple rank        # (when it was first bound, destination)


@cython.final
cdef class _Node:
    """What the words so far lead to."""

    cdef dict words          # word -> _Node, or None
    cdef _Node star
    cdef _Node hash
    cdef dict entries        # destination -> _Entry, or None
    cdef bint loops          # this is a `#`
    cdef uint64_t entered    # the step that entered this node last

    cdef bint is_bare(self):
        return not self.words and self.star is None and self.hash is None and not self.entries


cdef inline list split(bytes key):
    return key.split(b".") if key else []


cdef class TopicMatcher:
    """Bindings in a trie of their patterns' words."""

    caches_by_key = True

    cdef _Node root
    cdef uint64_t step        # counts words matched; never repeats within the life of a broker
    cdef long long sequence   # counts entries made

    def __init__(self):
        self.root = _Node()

    @property
    def is_empty(self):
        return self.root.is_bare()

    def validate(self, bytes routing_key not None, arguments):
        """Every binding is valid."""

    def bind(self, bytes routing_key not None, arguments, destination):
        cdef _Node node = self.root, child
        cdef _Entry entry
        cdef bytes word
        for word in split(routing_key):
            child = step_of(node, word)
            if child is None:
                child = _Node()
                if word == b"*":
                    node.star = child
                elif word == b"#":
                    child.loops = True
                    node.hash = child
                else:
                    if node.words is None:
                        node.words = {}
                    node.words[word] = child
            node = child
        if node.entries is None:
            node.entries = {}
        entry = node.entries.get(destination)
        if entry is None:
            entry = _Entry()
            entry.rank = (self.sequence, destination)
            self.sequence += 1
            node.entries[destination] = entry
        entry.count += 1

    def unbind(self, bytes routing_key not None, arguments, destination):
        cdef list words = split(routing_key), path = []
        cdef _Node node = self.root
        cdef _Entry entry
        cdef bytes word
        for word in words:
            path.append(node)
            node = step_of(node, word)
            if node is None:
                raise KeyError(routing_key)
        entry = None if node.entries is None else node.entries.get(destination)
        if entry is None:
            raise KeyError(routing_key)
        entry.count -= 1
        if entry.count:
            return
        del node.entries[destination]
        # Cut the branch back to the last node that still serves another pattern.
        while path and node.is_bare():
            word = words.pop()
            node = path.pop()
            if word == b"*":
                node.star = None
            elif word == b"#":
                node.hash = None
            else:
                del node.words[word]

    def match(self, bytes routing_key not None, headers, properties=None):
        cdef list here = [], there
        cdef _Node node, child
        cdef bytes word
        self.step += 1
        enter(self.root, here, self.step)
        for word in split(routing_key):
            self.step += 1
            there = []
            for node in here:
                if node.words is not None:
                    child = <_Node>node.words.get(word)
                    if child is not None:
                        enter(child, there, self.step)
                if node.star is not None:
                    enter(node.star, there, self.step)
                if node.loops:
                    enter(node, there, self.step)
            if not there:
                return []
            here = there
        return gather(here)


cdef inline _Node step_of(_Node node, bytes word):
    if word == b"*":
        return node.star
    if word == b"#":
        return node.hash
    return None if node.words is None else <_Node>node.words.get(word)


cdef int enter(_Node node, list nodes, uint64_t step) except -1:
    # A `#` may stand for no word at all: entering a node enters the `#` behind it too.
    while node is not None and node.entered != step:
        node.entered = step
        nodes.append(node)
        node = node.hash
    return 0


cdef list gather(list nodes):
    cdef _Node node
    cdef _Entry entry
    cdef dict only = None
    cdef list ranks
    for node in nodes:
        if node.entries:
            if only is not None:
                break
            only = node.entries
    else:
        # Within a node the dict already is in the order of binding.
        return [] if only is None else list(only)
    ranks = []
    for node in nodes:
        if node.entries:
            for entry in node.entries.values():
                ranks.append(entry.rank)
    ranks.sort()
    return list(dict.fromkeys([rank[1] for rank in ranks]))
