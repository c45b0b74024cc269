"""hotbed.jax on the local engine, where JAX is installed: pip install jax, and run this file with that Python."""

import unittest

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = None
import hotbed


@unittest.skipIf(jax is None, 'JAX is not installed')
class Lookup(unittest.TestCase):
    def test_gradients_of_rows_are_pushed(self):
        import hotbed.jax as hj
        with hotbed.local(memory='128MiB') as client:
            table = client.create_table('t', dim=4, rows=100, init='constant:1', optimizer=hotbed.optim.SGD(lr=1.0))
            steps = hj.Steps()

            @jax.jit
            def loss(params, ids):
                return (hj.lookup(table, ids, params['rows'], steps) * params['dense']).sum()

            params = {'dense': 2 * jnp.ones(4), 'rows': hj.anchor()}
            ids = jnp.array([[1, 2], [2, 3]])
            for step in (1, 2):
                got, gradients = jax.value_and_grad(loss)(params, ids)
                jax.effects_barrier()
                if step == 1:
                    self.assertEqual(float(got), 32.0)
                    self.assertEqual(gradients['dense'].tolist(), [4.0] * 4)
                self.assertEqual(float(gradients['rows']), 0.0)
            self.assertEqual(table.pull([1, 2, 3])[:, 0].tolist(), [-3.0, -7.0, -3.0])
            self.assertEqual(hj.lookup(table, ids).shape, (2, 2, 4))


if __name__ == '__main__':
    unittest.main()
