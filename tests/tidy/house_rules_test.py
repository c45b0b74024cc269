#!/usr/bin/env python3
"""Plants one violation of each house rule and expects it to be found, and a clean tree to be found clean."""

import os
import tempfile
import unittest

import house_rules

CLEAN = {
    'common/a.cc': '#include "common/a.h"\n\nint F(int x) {\n  return x;  // std::mutex in a comment is fine\n}\n',
    'common/a.h': '#include "row_math/b.h"\nconst char* const kText = "assert(std::mutex)";\n',
    'row_math/b.h': '#include <cstdint>\n',
    'proto/p.h': '#include "common/a.h"\n#include "google/protobuf/message.h"\n#include "proto/types.pb.h"\n',
    'server/shard/shard.cc': '#include "server/shard/requests.h"\n#include "server/tiers/t.h"\n',
    'server/shard/shard.h': 'class Shard {\n  int F();\n' + '  int a_ = 0;\n' * 25 + '};\n',
    'server/shard/requests.h': '\n',
    'server/tiers/t.h': '#include "kv/kv.h"\n',
    'server/stream.h': '#include <grpcpp/grpcpp.h>\n#include "server/shard/shard.h"\n',
    'kv/kv.h': '#include <rocksdb/db.h>\n',
    'planner/plan.h': '#include "common/a.h"\n#include <vector>\n',
    'README.md': '# Title\n\n```\n# not a title\n```\n\n## Part\n\nSee `server/shard/shard` and docs/page.md.\n',
    'docs/page.md': '# Page\n\n| ' + 'x ' * 80 + '|\n',
    'run': '#!/bin/sh\n',
}


def function_of(lines):
    return 'namespace n {\nclass C {\n  int F(int x) const {\n' + '    x += 1;\n' * (lines - 2) + '  }\n};\n}\n'


# (rule, path, content): added to the clean tree, each alone.
PLANTED = [
    ('columns', 'common/c.h', '// ' + 'x' * 98 + '\n'),
    ('function', 'common/c.h', function_of(71)),
    ('function', 'tests/common/c_test.cc', 'TEST(A, B) {\n' + '  F();\n' * 70 + '}\n'),
    ('function', 'tests/tidy/x.py', 'def f():\n' + '    f()\n' * 70),
    ('fields', 'common/c.h', 'class C {\n' + '  int a_ ABSL_GUARDED_BY(mu_) = 0;\n' * 13 + '  X b_{1};\n' * 13 + '};\n'),
    ('graph', 'kv/kv.h', '#include "server/tiers/t.h"\n'),
    ('reference', 'common/c.h', '// See docs/lost.md.\n'),
    ('reference', 'common/c.h', '// Bounded (DECI' 'SIONS C2).\n'),
    ('reference', 'docs/page.md', '# Page\n\n`server/lost` is there.\n'),
    ('prose', 'docs/page.md', '# Page\n\n' + 'word ' * 25 + '\n'),
    ('words', 'common/c.h', '// Of a row: its bytes.\n'),
    ('bytes', 'docs/data.bin', '\0' * (257 << 10)),
    ('mode', 'script.sh', '#!/bin/sh\n'),
    ('title', 'docs/page.md', '# One\n\n# Two\n'),
    ('title', 'docs/page.md', 'no title\n'),
    ('names', 'common/row_util.h', '\n'),
    ('names', 'common/c.h', 'class RowManager {};\n'),
    ('words', 'common/c.h', 'std::mutex m;\n'),
    ('words', 'common/c.h', 'void F() { std::this_thread::sleep_for(x); }\n'),
    ('words', 'common/c.h', 'int x = rand();\n'),
    ('words', 'common/c.h', 'using namespace std;\n'),
    ('words', 'common/c.h', 'void F() { assert(true); }\n'),
    ('words', 'common/c.h', '// TO' 'DO: later\n'),
    ('words', 'docs/page.md', '# Page\n\nFIX' 'ME\n'),
    ('words', 'docs/page.md', '# Page\n\nSee /wor' 'k/main.\n'),
    ('include', 'common/c.h', '#include "proto/types.pb.h"\n'),
    ('include', 'common/c.h', '#include "proto/p.h"\n'),
    ('include', 'common/c.h', '#include <grpcpp/grpcpp.h>\n'),
    ('include', 'common/c.h', '#include "a.h"\n'),
    ('include', 'row_math/c.h', '#include "absl/strings/str_cat.h"\n'),
    ('include', 'proto/c.h', '#include <rocksdb/db.h>\n'),
    ('include', 'server/c.h', '#include "planner/plan.h"\n'),
    ('include', 'server/c.h', '#include <prometheus/counter.h>\n'),
    ('include', 'server/shard/c.h', '#include "server/stream.h"\n'),
    ('include', 'server/tiers/c.h', '#include "google/protobuf/message.h"\n'),
    ('include', 'planner/c.h', '#include <thread>\n'),
    ('include', 'client/c.h', '#include "server/shard/shard.h"\n'),
    ('include', 'client/include/hotbed/c.h', '#include <grpcpp/grpcpp.h>\n'),
    ('include', 'planner/coordinator/c.h', '#include "server/tiers/t.h"\n'),
    ('exception', 'tests/tidy/exceptions.txt', 'fields common/a.cc not needed\n'),
    ('exception', 'tests/tidy/exceptions.txt', 'fields common/a.cc\n'),
]


class HouseRulesTest(unittest.TestCase):
    def violations(self, *extra):
        with tempfile.TemporaryDirectory() as root:
            for path, content in [*CLEAN.items(), *extra]:
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, 'w', encoding='utf-8') as file:
                    file.write(content)
            os.chmod(os.path.join(root, 'run'), 0o755)
            return house_rules.violations(root)

    def test_a_clean_tree_is_clean(self):
        self.assertEqual(self.violations(), [])

    def test_each_planted_violation_is_found(self):
        for rule, path, content in PLANTED:
            with self.subTest(rule=rule, path=path, content=content[:60]):
                found = self.violations((path, content))
                # A circle is told of at one of its folders.
                where = '' if rule == 'graph' else path + ':'
                self.assertTrue([f for f in found if f.startswith(where) and f'[{rule}]' in f], found)

    def test_a_class_in_three_sources_is_found(self):
        parts = [(f'server/shard/part{n}.cc', '#include "server/shard/shard.h"\n\nint Shard::F() {\n}\n') for n in range(3)]
        self.assertEqual(self.violations(*parts[:2]), [])
        self.assertTrue([f for f in self.violations(*parts) if '[sources] Shard is spread over 3' in f])

    def test_the_longest_allowed_function_is_allowed(self):
        self.assertEqual(self.violations(('common/c.h', function_of(70))), [])

    def test_an_exception_excuses_its_rule_alone(self):
        large = ('common/c.h', 'class C {\n' + '  int a_;\n' * 26 + '};\n')
        self.assertEqual(self.violations(large, (house_rules.EXCEPTIONS, 'fields common/*.h a table\n')), [])
        found = self.violations(large, (house_rules.EXCEPTIONS, 'fields common/d.h other\n'))
        self.assertEqual(len(found), 2, found)


if __name__ == '__main__':
    unittest.main()
