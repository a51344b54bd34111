"""The cases of test_6_styles.py."""

PRELUDE = """
import os, sys, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
def make(d=20, k=3): return nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, k))
def data(n=512, d=20, k=3, batch=32, **more):
    g = torch.Generator().manual_seed(1); x = torch.randn(n, d, generator=g); w = torch.randn(d, k, generator=g)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x @ w).argmax(1)), batch, shuffle=True, **more)
def fit(m, o=None, loader=None, epochs=3, f=nn.functional.cross_entropy, each=None):
    o = o or torch.optim.SGD(m.parameters(), 0.1); loader = loader or data()
    for e in range(epochs):
        for x, y in loader:
            o.zero_grad(); l = f(m(x), y); l.backward(); o.step()
            if each: each(l)
        print(e, l.item(), flush=True)
    return m
def total(m): return sum(p.detach().double().abs().sum().item() for p in m.parameters())
"""

_CODES = {
    "plain": "m = fit(make()); print(total(m), torch.rand(1).item())",
    "sys.exit(7)": "fit(make()); sys.exit(7)",
    "sys.exit('words')": "fit(make()); sys.exit('words')",
    "os._exit(5)": "fit(make()); sys.stdout.flush(); os._exit(5)",
    "raise": "fit(make()); raise RuntimeError('boom')",
    "raise in backward hook": """
m = make(); n = [0]
def h(mod, gi, go):
    n[0] += 1
    if n[0] > 20: raise ValueError('hook')
m[0].register_full_backward_hook(h); fit(m)""",
    "raise in tensor hook": """
m = make(); n = [0]
def h(g):
    n[0] += 1
    if n[0] > 20: raise KeyError('t')
    return g * 0.5
m[0].weight.register_hook(h); fit(m)""",
    "recursion": """
m = make(); fit(m)
def r(n): return r(n + 1)
r(0)""",
    "deep recursion in forward": """
class R(nn.Module):
    def __init__(s): super().__init__(); s.l = nn.Linear(20, 20); s.o = nn.Linear(20, 3)
    def go(s, x, n): return x if n == 0 else s.go(torch.tanh(s.l(x)) + x, n - 1)
    def forward(s, x): return s.o(s.go(x, 400))
sys.setrecursionlimit(900)
fit(R(), epochs=1, loader=data(n=128))""",
    "faulthandler abort": "import faulthandler; faulthandler.enable(); fit(make()); sys.stdout.flush(); os.abort()",
    "segfault": "fit(make()); sys.stdout.flush(); import ctypes; ctypes.string_at(0)",
    "replaces stdout": """
import io
keep = sys.stdout; sys.stdout = io.StringIO(); fit(make()); text = sys.stdout.getvalue(); sys.stdout = keep; print(text)""",
    "replaces stderr and closes it": "sys.stderr.close(); fit(make()); os.close(2)",
    "closes stdout": "fit(make()); sys.stdout.flush(); os.close(1)",
    "replaces excepthook": """
sys.excepthook = lambda *a: (print('mine', a[0].__name__), sys.stdout.flush())
fit(make()); raise RuntimeError('boom')""",
    "own SIGINT handler": """# signal: SIGINT
import signal, time
def h(s, f): print('caught', s, flush=True); sys.exit(9)
signal.signal(signal.SIGINT, h); m = make(); fit(m); print('ready', flush=True)
o = torch.optim.SGD(m.parameters(), 0.1)
while True:
    for x, y in data(): o.zero_grad(); nn.functional.cross_entropy(m(x), y).backward(); o.step()""",
    "KeyboardInterrupt caught": """# signal: SIGINT
import time
m = make(); fit(m); print('ready', flush=True)
try:
    while True: fit.__call__ and time.sleep(0.01)
except KeyboardInterrupt: print('caught'); torch.save(m.state_dict(), 'x.pt'); print(os.path.getsize('x.pt') > 0)""",
    **{
        f"signal {name}": f"""# signal: {name}
m = make(); fit(m); print('ready', flush=True)
o = torch.optim.SGD(m.parameters(), 0.1); d = data()
while True:
    for x, y in d: o.zero_grad(); nn.functional.cross_entropy(m(x), y).backward(); o.step()"""
        for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1")
    },
    "atexit and finally": """
import atexit; atexit.register(lambda: print('atexit', flush=True))
try: fit(make()); raise SystemExit(4)
finally: print('finally')""",
    "os.fork child trains": """
m = make(); fit(m, epochs=1); sys.stdout.flush()
pid = os.fork()
if pid == 0: fit(m, epochs=1); sys.stdout.flush(); os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])); fit(m, epochs=1); print(total(m))""",
    "os.fork child sys.exit": """
m = make(); fit(m, epochs=1); sys.stdout.flush()
pid = os.fork()
if pid == 0: print('child', flush=True); sys.exit(6)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])); fit(m, epochs=1); print(total(m))""",
    **{
        f"workers {n} {method}{' persistent' if keep else ''}": f"""
if __name__ == '__main__':
    m = make(); fit(m, loader=data(num_workers={n}, multiprocessing_context='{method}', persistent_workers={keep}), epochs=2); print(total(m))"""
        for n, method, keep in ((2, "fork", True), (8, "fork", False), (2, "spawn", True), (2, "forkserver", False))
    },
    "workers 0": "m = fit(make(), loader=data(num_workers=0)); print(total(m))",
    "worker raises": """
class D(torch.utils.data.Dataset):
    def __len__(s): return 64
    def __getitem__(s, i):
        if i == 50: raise ValueError('bad sample')
        return torch.randn(20), 0
fit(make(), loader=torch.utils.data.DataLoader(D(), 8, num_workers=2))""",
    "multiprocessing.Process spawn trains": """
import multiprocessing as mp
def go(): fit(make(), epochs=1); sys.stdout.flush()
if __name__ == '__main__':
    p = mp.get_context('spawn').Process(target=go); p.start(); p.join(); print(p.exitcode); m = fit(make(), epochs=1); print(total(m))""",
    "Pool fork maps tensors": """
import multiprocessing as mp
def sq(x): return x * x
if __name__ == '__main__':
    m = make(); fit(m, epochs=1)
    with mp.get_context('fork').Pool(2) as p: print(p.map(sq, range(5)))
    fit(m, epochs=1); print(total(m))""",
    "subprocess trains": """
import subprocess
if len(sys.argv) > 1: fit(make(), epochs=1); sys.exit(3)
print(subprocess.run([sys.executable, __file__, 'child']).returncode); m = fit(make(), epochs=1); print(total(m))""",
    "torch.multiprocessing.spawn gloo": """
import torch.distributed as dist, torch.multiprocessing as mp
def go(rank, port):
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port)); dist.init_process_group('gloo', rank=rank, world_size=2)
    torch.manual_seed(0); m = nn.parallel.DistributedDataParallel(make()); o = torch.optim.SGD(m.parameters(), 0.1)
    for x, y in data(): o.zero_grad(); nn.functional.cross_entropy(m(x), y).backward(); o.step()
    if rank == 0: print(total(m), flush=True)
    dist.destroy_process_group()
if __name__ == '__main__':
    import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); port = s.getsockname()[1]; s.close()
    mp.spawn(go, (port,), 2); print('done')""",
    "torchrun 2 ranks": "# wrap: torchrun --standalone --nproc-per-node 2\n__DDP__\nif rank == 0: print(total(m), flush=True)\ndist.destroy_process_group()",
    "torchrun rank 1 raises": "# wrap: torchrun --standalone --nproc-per-node 2\n__DDP__\nif rank == 1: raise RuntimeError('rank one')\nimport time; time.sleep(2)\ndist.destroy_process_group()",
    "torchrun rank 1 kill -9": "# wrap: torchrun --standalone --nproc-per-node 2\n__DDP__\nimport signal, time\nif rank == 1: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)",
    "FSDP2 2 ranks": """# wrap: torchrun --standalone --nproc-per-node 2
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group('gloo'); rank = dist.get_rank(); torch.manual_seed(0); m = make()
for l in (m[0], m[2]): fully_shard(l)
fully_shard(m); o = torch.optim.AdamW(m.parameters(), 1e-2)
for x, y in data(): o.zero_grad(); l = nn.functional.cross_entropy(m(x), y); l.backward(); o.step()
if rank == 0: print(l.item(), sorted(m.state_dict()), flush=True)
dist.destroy_process_group()""",
    "threads train in parallel": """
import threading
made = [make() for _ in range(3)]; torch.manual_seed(0)
def go(m):
    o = torch.optim.SGD(m.parameters(), 0.1); g = torch.Generator().manual_seed(1)
    for _ in range(200): x = torch.randn(16, 20, generator=g); o.zero_grad(); (m(x) ** 2).mean().backward(); o.step()
ts = [threading.Thread(target=go, args=(m,)) for m in made]; [t.start() for t in ts]; [t.join() for t in ts]
print([total(m) for m in made])""",
    "trains in a daemon thread, main ends": """
import threading, time
m = make()
threading.Thread(target=fit, args=(m,), kwargs=dict(epochs=10000), daemon=True).start(); time.sleep(1.0); os.write(1, b'main ends\\n'); os._exit(0)""",
    "asyncio": """
import asyncio
async def go():
    m = make(); o = torch.optim.SGD(m.parameters(), 0.1)
    for x, y in data(): o.zero_grad(); l = nn.functional.cross_entropy(m(x), y); l.backward(); o.step(); await asyncio.sleep(0)
    print(l.item())
asyncio.run(go())""",
    "module with relative import": "# module: pkg.train\nfrom .helper import *\nif __name__ == '__main__': m = fit(make()); print(total(m), __name__, __package__, sys.argv)",
    "stdin": "# stdin: 0.05\\n2\\n\nlr = float(input()); n = int(sys.stdin.readline()); m = make(); fit(m, torch.optim.SGD(m.parameters(), lr), epochs=n); print(lr, n, sys.stdin.read())",
    "very long argv": "# args: " + "--word " * 3000 + "\nfit(make()); print(len(sys.argv))",
    "odd argv": "# args: --out x --name '' '--' -m --json=3 'a b' $'\\n' é ' '\nfit(make()); print(sys.argv)",
    "unicode and space path": "# name: my exp ü 训练/tr äin.py\nfit(make()); print(__file__)",
    "script without .py": "# name: train\nfit(make()); print(__file__)",
    "monkeypatches backward": """
old = torch.Tensor.backward; n = [0]
def mine(self, *a, **k): n[0] += 1; return old(self, *a, **k)
torch.Tensor.backward = mine; m = fit(make()); print(n, total(m), torch.Tensor.backward is mine)""",
    "monkeypatches optimizer step and Module call": """
s, c, n = torch.optim.SGD.step, nn.Module.__call__, [0, 0]
def step(self, *a, **k): n[0] += 1; return s(self, *a, **k)
def callm(self, *a, **k): n[1] += 1; return c(self, *a, **k)
torch.optim.SGD.step = step; nn.Module.__call__ = callm; m = fit(make()); print(n, total(m))""",
    "torch identity": """
print(torch.Tensor.backward.__name__, torch.Tensor.backward.__module__, torch.autograd.backward.__module__, torch.optim.SGD.step.__qualname__, nn.Module.__call__.__qualname__, torch.utils.data.DataLoader.__iter__.__qualname__, nn.functional.cross_entropy.__module__)
import inspect; print(inspect.signature(torch.Tensor.backward), inspect.signature(torch.optim.SGD.step), inspect.signature(torch.nn.functional.cross_entropy))
import torch.autograd; m = fit(make()); print(sorted(k for k in vars(m) if 'hook' not in k), len(m._forward_hooks), len(m._backward_hooks), len(m[0]._forward_hooks), len(m[0]._forward_pre_hooks), len(m[0].weight._backward_hooks or ()))""",
    "hooks seen by the script": """
m = make(); o = torch.optim.SGD(m.parameters(), 0.1); fit(m, o)
print([{k: len(v) for k, v in vars(x).items() if k.endswith('hooks') and v} for x in m.modules()])
print({k: len(v) for k, v in vars(o).items() if 'hooks' in k}, [len(p._post_accumulate_grad_hooks or ()) if hasattr(p, '_post_accumulate_grad_hooks') else 0 for p in m.parameters()], [p._backward_hooks for p in m.parameters()])""",
    "torch.compile": "# seconds: 200\nm = make(); c = torch.compile(m, backend='aot_eager'); fit(c); print(total(m)); print(torch._dynamo.utils.counters['graph_break'], torch._dynamo.utils.counters['stats'].get('unique_graphs'))",
    "torch.compile inductor": "# seconds: 280\nm = make(); c = torch.compile(m); fit(c); print(total(m), torch._dynamo.utils.counters['stats'].get('unique_graphs'))",
    "torch.compile fullgraph of a step": """# seconds: 200
m = make()
@torch.compile(fullgraph=True, backend='eager')
def loss(x, y): return nn.functional.cross_entropy(m(x), y)
o = torch.optim.SGD(m.parameters(), 0.1)
for x, y in data(): o.zero_grad(); l = loss(x, y); l.backward(); o.step()
print(l.item(), total(m))""",
    "torch.export": "m = fit(make()); e = torch.export.export(m, (torch.randn(2, 20),)); print(len(list(e.graph.nodes)), [n.op for n in e.graph.nodes])",
    "functorch grad and vmap": """
from torch.func import functional_call, grad, vmap
m = make(); ps = {k: v.detach() for k, v in m.named_parameters()}
def loss(p, x, y): return nn.functional.cross_entropy(functional_call(m, p, (x[None],)), y[None])
for i, (x, y) in enumerate(data()):
    g = vmap(grad(loss), (None, 0, 0))(ps, x, y); ps = {k: v - 0.1 * g[k].mean(0) for k, v in ps.items()}
print(sum(v.double().abs().sum().item() for v in ps.values()))""",
    "jvp jacrev hessian": """
from torch.func import jacrev, jvp, hessian
m = make(); fit(m); f = lambda x: m(x).sum()
x = torch.ones(20); print(jacrev(m)(x).shape, jvp(m, (x,), (x,))[1].shape, hessian(f)(x).shape, torch.autograd.functional.jacobian(m, x).shape)""",
    "jit trace and script": "m = make(); t = torch.jit.trace(m, torch.randn(2, 20)); s = torch.jit.script(make()); fit(t, epochs=1); fit(s, epochs=1); t.save('t.pt'); s.save('s.pt'); print(total(t), total(s), len(t.code), torch.jit.load('t.pt')(torch.ones(1, 20)).shape)",
    "custom autograd function": """
class F(torch.autograd.Function):
    @staticmethod
    def forward(c, x): c.save_for_backward(x); return x.clamp(min=0)
    @staticmethod
    def backward(c, g): (x,) = c.saved_tensors; return g * (x > 0)
class A(nn.Module):
    def forward(s, x): return F.apply(x)
m = nn.Sequential(nn.Linear(20, 32), A(), nn.Linear(32, 3)); fit(m); print(total(m))""",
    "double backward": """
m = make(); o = torch.optim.SGD(m.parameters(), 0.1)
for x, y in data():
    x.requires_grad_(); o.zero_grad(); l = nn.functional.cross_entropy(m(x), y)
    (g,) = torch.autograd.grad(l, x, create_graph=True); (l + g.pow(2).sum()).backward(); o.step()
print(l.item(), total(m))""",
    "retain_graph twice": """
m = make(); o = torch.optim.SGD(m.parameters(), 0.05)
for x, y in data(): o.zero_grad(); l = nn.functional.cross_entropy(m(x), y); l.backward(retain_graph=True); l.backward(); o.step()
print(l.item(), total(m))""",
    "LBFGS closure": """
m = make(); o = torch.optim.LBFGS(m.parameters(), 0.1); x, y = next(iter(data(batch=512)))
for i in range(10):
    def c(): o.zero_grad(); l = nn.functional.cross_entropy(m(x), y); l.backward(); return l
    print(o.step(c).item())
print(total(m))""",
    "backward in an optimizer hook": """
m = make(); os_ = {p: torch.optim.SGD([p], 0.1) for p in m.parameters()}
for p in m.parameters(): p.register_post_accumulate_grad_hook(lambda p: (os_[p].step(), os_[p].zero_grad()) and None)
for e in range(2):
    for x, y in data(): l = nn.functional.cross_entropy(m(x), y); l.backward()
print(l.item(), total(m))""",
    "deepcopy, pickle, state_dict mid-run": """
import copy, pickle
m = make(); o = torch.optim.Adam(m.parameters(), 1e-2); fit(m, o)
c = copy.deepcopy(m); co = copy.deepcopy(o); b = pickle.dumps(m); bo = pickle.dumps(o); l = data(); pickle.dumps(l)
print(b'torchdoctor' in b, b'torchdoctor' in bo, len(b), len(bo), list(m.state_dict()), list(o.state_dict()), o.state_dict()['param_groups'])
torch.save(m, 'm.pt'); print(b'torchdoctor' in open('m.pt', 'rb').read(), os.path.getsize('m.pt'))
torch.save({'m': m, 'o': o}, 'mo.pt'); print(b'torchdoctor' in open('mo.pt', 'rb').read())
fit(c); print(total(c), total(m), [len(v) for k, v in sorted(vars(c[0]).items()) if k.endswith('hooks')])
import subprocess; print(subprocess.run([sys.executable, '-c', 'import torch; m = torch.load("m.pt", weights_only=False); print(m, [len(v) for k, v in sorted(vars(m[0]).items()) if k.endswith("hooks")])'], capture_output=True, text=True, env={**os.environ, 'TORCHDOCTOR_DISABLE': '1', 'PYTHONPATH': ''}).stdout)""",
    "deepcopy inside the loop (EMA)": """
import copy
m = make(); e = copy.deepcopy(m); o = torch.optim.SGD(m.parameters(), 0.1)
for i, (x, y) in enumerate(data()):
    o.zero_grad(); nn.functional.cross_entropy(m(x), y).backward()
    if i % 5 == 0: e = copy.deepcopy(m)
    o.step()
    with torch.no_grad():
        for a, b in zip(e.parameters(), m.parameters()): a.lerp_(b, 0.1)
print(total(m), total(e)); fit(e, epochs=1); print(total(e))""",
    "weakrefs and gc": """
import gc, weakref
m = make(); o = torch.optim.SGD(m.parameters(), 0.1); fit(m, o); r = [weakref.ref(m), weakref.ref(o), weakref.ref(m[0].weight)]
del m, o; gc.collect(); print([x() is None for x in r])""",
    "activation memory freed": """
import gc, weakref
m = make(); o = torch.optim.SGD(m.parameters(), 0.1); rs = []
for x, y in data():
    o.zero_grad(); out = m(x); l = nn.functional.cross_entropy(out, y); rs += [weakref.ref(out), weakref.ref(x), weakref.ref(l)]; l.backward(); o.step()
del out, l, x, y; gc.collect(); print(sum(r() is not None for r in rs))""",
    "__slots__ module and __getattr__": """
class S(nn.Module):
    __slots__ = ('k',)
    def __init__(s): super().__init__(); s.k = 3; s.l = nn.Linear(20, 3)
    def __getattr__(s, n):
        if n == 'magic': return 1
        return super().__getattr__(n)
    def __len__(s): return 0
    def __bool__(s): raise RuntimeError('no truth')
    def __eq__(s, o): raise RuntimeError('no equality')
    __hash__ = nn.Module.__hash__
    def forward(s, x): return s.l(x) * s.magic
fit(S())""",
    "module that forbids setattr": """
class S(nn.Module):
    def __init__(s): super().__init__(); s.l = nn.Linear(20, 3); object.__setattr__(s, 'shut', True)
    def __setattr__(s, n, v):
        if vars(s).get('shut'): raise AttributeError('frozen ' + n)
        super().__setattr__(n, v)
    def forward(s, x): return s.l(x)
fit(S())""",
    "properties that raise": """
class S(nn.Module):
    def __init__(s): super().__init__(); s.l = nn.Linear(20, 3)
    @property
    def device(s): raise RuntimeError('asked')
    @property
    def config(s): print('config asked'); return {}
    def __repr__(s): print('repr asked'); raise RuntimeError('no repr')
    def forward(s, x): return s.l(x)
fit(S())""",
    "parametrizations and spectral norm": """
from torch.nn.utils import parametrizations as P, parametrize
m = make(); P.weight_norm(m[0]); P.spectral_norm(m[2]); fit(m); print(total(m), parametrize.is_parametrized(m[0]), list(m.state_dict()))""",
    "pruning and weight_norm old": """
from torch.nn.utils import prune, weight_norm
m = make(); prune.l1_unstructured(m[0], 'weight', 0.3); m[2] = weight_norm(m[2]); fit(m); prune.remove(m[0], 'weight'); print(total(m), list(m.state_dict()))""",
    "complex": """
class C(nn.Module):
    def __init__(s): super().__init__(); s.w = nn.Parameter(torch.randn(20, 3, dtype=torch.cfloat)); s.b = nn.Parameter(torch.zeros(3))
    def forward(s, x): return (x.to(torch.cfloat) @ s.w).abs() + s.b
m = C(); o = torch.optim.Adam(m.parameters(), 1e-2); fit(m, o); print(m.w.abs().sum().item())""",
    "sparse embedding": """
e = nn.Embedding(1000, 16, sparse=True); h = nn.Linear(16, 2); o = torch.optim.SparseAdam(e.parameters(), 1e-2); p = torch.optim.SGD(h.parameters(), 0.1)
for i in range(60):
    x = torch.randint(0, 1000, (32, 5)); y = (x.sum(1) % 2); l = nn.functional.cross_entropy(h(e(x).mean(1)), y)
    o.zero_grad(); p.zero_grad(); l.backward(); o.step(); p.step()
print(l.item(), total(e))""",
    "sparse CSR and COO matmul": """
a = torch.eye(20).to_sparse(); w = nn.Parameter(torch.randn(20, 3)); o = torch.optim.SGD([w], 0.1)
for x, y in data(): o.zero_grad(); l = nn.functional.cross_entropy(torch.sparse.mm(a, x.t()).t() @ w, y); l.backward(); o.step()
print(l.item(), w.sum().item(), a.to_sparse_csr().shape)""",
    "float64": "m = make().double(); fit(m, f=lambda a, b: nn.functional.cross_entropy(a, b), loader=[(x.double(), y) for x, y in data()]); print(total(m))",
    "bfloat16 and float16": "m = make().bfloat16(); fit(m, loader=[(x.bfloat16(), y) for x, y in data()]); print(total(m)); m = make().half(); fit(m, loader=[(x.half(), y) for x, y in data()]); print(total(m))",
    "default dtype and device contexts": """
torch.set_default_dtype(torch.float64)
with torch.device('cpu'): m = make()
fit(m, loader=[(x.double(), y) for x, y in data()]); print(total(m), m[0].weight.dtype)""",
    "meta tensors": """
with torch.device('meta'): m = make()
print(m(torch.randn(2, 20, device='meta')).shape); l = m(torch.randn(2, 20, device='meta')).sum(); l.backward(); o = torch.optim.SGD(m.parameters(), 0.1); o.step()
m = m.to_empty(device='cpu'); [nn.init.normal_(p, std=0.1) for p in m.parameters()]; fit(m); print(total(m))""",
    "empty batches": """
m = make(); o = torch.optim.SGD(m.parameters(), 0.1)
for i, (x, y) in enumerate(data()):
    if i % 4 == 0: x, y = x[:0], y[:0]
    o.zero_grad(); l = nn.functional.cross_entropy(m(x), y, reduction='sum'); l.backward(); o.step()
print(l.item(), total(m))""",
    "zero-dimensional and scalar parameters": """
w = nn.Parameter(torch.tensor(0.5)); e = nn.Parameter(torch.empty(0)); o = torch.optim.SGD([w, e], 0.01)
for i in range(100): o.zero_grad(); l = (w - 3) ** 2 + e.sum(); l.backward(); o.step()
print(l.item(), w.item())""",
    "zero-parameter model": """
class N(nn.Module):
    def forward(s, x): return x[:, :3]
w = nn.Parameter(torch.ones(3)); m = N(); o = torch.optim.SGD([w], 0.1)
for x, y in data(): o.zero_grad(); l = nn.functional.cross_entropy(m(x) * w, y); l.backward(); o.step()
print(l.item(), w.sum().item())
try: torch.optim.SGD(m.parameters(), 0.1)
except ValueError as e: print(e)""",
    "5,000 layers": """# seconds: 280
m = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2500)], nn.Linear(4, 3)); fit(m, loader=data(n=160, d=4), epochs=1); print(total(m))""",
    "10,000 parameters in a list": """# seconds: 280
m = nn.ParameterList([nn.Parameter(torch.randn(2, 2)) for _ in range(10000)]); o = torch.optim.SGD(m.parameters(), 0.01)
for i in range(20): o.zero_grad(); l = sum((p ** 2).sum() for p in m); l.backward(); o.step()
print(l.item())""",
    "nested tensors": """
m = nn.Linear(8, 3); o = torch.optim.SGD(m.parameters(), 0.1)
for i in range(40):
    n = torch.nested.nested_tensor([torch.randn(2 + i % 3, 8), torch.randn(4, 8)], layout=torch.jagged); o.zero_grad(); l = (m(n).values() ** 2).mean(); l.backward(); o.step()
print(l.item(), total(m))""",
    "tensor subclass": """
class T(torch.Tensor):
    n = 0
    @classmethod
    def __torch_function__(c, f, t, a=(), k=None): T.n += 1; return super().__torch_function__(f, t, a, k or {})
m = make(); fit(m, loader=[(x.as_subclass(T), y) for x, y in data()]); print(total(m), T.n)""",
    "TorchDispatchMode of its own": """
from torch.utils._python_dispatch import TorchDispatchMode
from torch.overrides import TorchFunctionMode
class C(TorchDispatchMode):
    n = 0
    def __torch_dispatch__(s, f, t, a=(), k=None): C.n += 1; return f(*a, **(k or {}))
class F(TorchFunctionMode):
    n = 0
    def __torch_function__(s, f, t, a=(), k=None): F.n += 1; return f(*a, **(k or {}))
with C(), F(): m = fit(make(), epochs=2)
print(C.n, F.n, total(m))""",
    "anomaly mode, profiler, deterministic": """
torch.use_deterministic_algorithms(True); torch.autograd.set_detect_anomaly(True)
from torch.profiler import profile
with profile() as p: m = fit(make(), epochs=1)
print(total(m), sorted(e.key for e in p.key_averages() if e.key.startswith('aten::') )[:400].__len__())""",
    "checkpointing and autocast": """
from torch.utils.checkpoint import checkpoint
m = make(); o = torch.optim.SGD(m.parameters(), 0.1)
for x, y in data():
    with torch.autocast('cpu', torch.bfloat16): l = nn.functional.cross_entropy(checkpoint(m, x, use_reentrant=False), y)
    o.zero_grad(); l.backward(); o.step()
print(l.item(), total(m))""",
    "inference mode and no_grad": """
m = make(); fit(m)
with torch.inference_mode(): print(m(torch.ones(1, 20)))
with torch.no_grad(): print(m(torch.ones(1, 20)).requires_grad)
fit(m); print(total(m))""",
    "lazy modules": "m = nn.Sequential(nn.LazyLinear(32), nn.ReLU(), nn.LazyLinear(3)); m(torch.randn(2, 20)); fit(m); print(total(m))",
    "RNN packed sequences": """
from torch.nn.utils.rnn import pack_padded_sequence as pack
r = nn.LSTM(8, 16, 2, batch_first=True); h = nn.Linear(16, 2); m = nn.ModuleList([r, h]); o = torch.optim.Adam(m.parameters(), 1e-2)
for i in range(40):
    x = torch.randn(4, 6, 8); p = pack(x, torch.tensor([6, 5, 3, 2]), batch_first=True); _, (hn, _) = r(p); l = nn.functional.cross_entropy(h(hn[-1]), torch.tensor([0, 1, 0, 1])); o.zero_grad(); l.backward(); o.step()
print(l.item())""",
    "parameters replaced and .data": """
m = make(); o = torch.optim.SGD(m.parameters(), 0.1); fit(m, o, epochs=1)
m[2] = nn.Linear(32, 3); o = torch.optim.SGD(m.parameters(), 0.1); fit(m, o, epochs=1)
for p in m.parameters(): p.data = p.data * 0.9
o.add_param_group({'params': [nn.Parameter(torch.ones(3))]}); fit(m, o, epochs=1); print(total(m))""",
    "chdir, umask, cwd removed": """
import tempfile, shutil
d = tempfile.mkdtemp(); os.chdir(d); shutil.rmtree(d); m = fit(make()); print(total(m))""",
    "closes all descriptors": "fit(make(), epochs=1); sys.stdout.flush(); os.closerange(3, 256); m = fit(make()); print(total(m))",
    "daemonises (double fork)": """
m = make(); fit(m, epochs=1); sys.stdout.flush()
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
fit(m, epochs=1); sys.stdout.flush(); os._exit(0)""",
    "exec of itself": """
if len(sys.argv) < 2: fit(make(), epochs=1); sys.stdout.flush(); os.execv(sys.executable, [sys.executable, __file__, 'again'])
m = fit(make()); print(total(m), sys.argv[1:])""",
    "settrace and setprofile": """
n = [0]
def t(f, e, a): n[0] += 1; return None
sys.setprofile(t); m = fit(make(), epochs=1); sys.setprofile(None); print(total(m), n[0] > 100)""",
    "warnings as errors": "import warnings; warnings.simplefilter('error'); m = fit(make()); print(total(m))",
    "logging configured": "import logging; logging.basicConfig(level=logging.DEBUG, format='%(name)s %(message)s', stream=sys.stdout); m = fit(make()); print(total(m), [n for n in logging.root.manager.loggerDict if 'doctor' in n])",
    "RNG states": """
import random, numpy as np
random.seed(1); np.random.seed(1); m = fit(make()); print(random.random(), np.random.rand(), torch.rand(1).item(), torch.get_rng_state().sum().item())""",
    "numpy errstate, tf32, threads, grad mode": "import numpy as np; np.seterr(all='raise'); m = fit(make()); print(np.geterr(), torch.get_num_threads(), torch.is_grad_enabled(), torch.backends.cpu.get_cpu_capability(), torch.get_float32_matmul_precision())",
    "main module and globals": "fit(make()); print(__name__, sorted(g for g in globals() if 'doctor' in g.lower()), sys.modules['__main__'].__file__.endswith('case.py'), sys.argv, sys.path[0] == os.path.dirname(os.path.abspath(__file__)), __spec__, [x for x in os.environ if 'DOCTOR' in x])",
    "import hook of its own": """
import importlib.abc
class H(importlib.abc.MetaPathFinder):
    def find_spec(s, n, p, t=None):
        if n.startswith('torchdoctor') or n == 'pyarrow': raise ImportError('no ' + n)
sys.meta_path.insert(0, H()); m = fit(make()); print(total(m))""",
    "script named like a library": "# name: queue.py\nm = fit(make()); print(total(m))",
    "file beside it shadows pyarrow": "open('pyarrow.py', 'w').write('raise RuntimeError(1)'); m = fit(make()); print(total(m))",
    "syntax error": "fit(make())\ndef broken(:",
    "never trains": "print('hello')",
    "out of memory": "fit(make()); torch.empty(1 << 50)",
    "generator loss and NaN": "m = make(); fit(m, f=lambda a, b: nn.functional.cross_entropy(a, b) * float('nan'), epochs=2); print(total(m))",
    "loss raises at step 30": """
n = [0]
def f(a, b):
    n[0] += 1
    if n[0] > 30: raise ZeroDivisionError('mine')
    return nn.functional.cross_entropy(a, b)
fit(make(), f=f)""",
    "exception group and chained": """
fit(make())
try: raise ValueError('first')
except ValueError as e: raise ExceptionGroup('g', [e, KeyError('x')]) from e""",
    "SystemExit in a thread and a broken pipe": """
import threading
t = threading.Thread(target=lambda: sys.exit(3)); t.start(); t.join(); fit(make())""",
    "quantization aware": """
import torch.ao.quantization as q, warnings; warnings.simplefilter('ignore')
m = make(); m.qconfig = q.get_default_qat_qconfig('fbgemm'); q.prepare_qat(m.train(), inplace=True); fit(m, epochs=1); print(total(m))""",
    "swa and ExponentialLR": """
from torch.optim.swa_utils import AveragedModel
m = make(); o = torch.optim.SGD(m.parameters(), 0.1); a = AveragedModel(m); s = torch.optim.lr_scheduler.ExponentialLR(o, 0.9)
for e in range(3): fit(m, o, epochs=1); a.update_parameters(m); s.step()
print(total(a), s.get_last_lr(), list(a.state_dict())[:3])""",
    "optimizer foreach fused capturable": "m = make(); o = torch.optim.AdamW(m.parameters(), 1e-2, fused=True); fit(m, o); print(total(m)); m = make(); o = torch.optim.Adam(m.parameters(), torch.tensor(1e-2), foreach=False); fit(m, o); print(total(m), o.param_groups[0]['lr'])",
    "own optimizer, not a subclass": """
class O:
    def __init__(s, p): s.p = list(p)
    def zero_grad(s): [setattr(p, 'grad', None) for p in s.p]
    @torch.no_grad()
    def step(s): [p.sub_(p.grad * 0.1) for p in s.p]
m = make(); fit(m, O(m.parameters())); print(total(m))""",
    "autograd.grad by hand": """
m = make(); ps = list(m.parameters())
for x, y in data():
    l = nn.functional.cross_entropy(m(x), y); gs = torch.autograd.grad(l, m.parameters())
    with torch.no_grad(): [p.sub_(0.1 * g) for p, g in zip(ps, gs)]
print(l.item(), total(m))""",
    "generator of steps in an ExitStack": """
import contextlib
def steps(m, o):
    with contextlib.ExitStack() as s:
        s.callback(print, 'closed', flush=True)
        while True: x, y = yield; o.zero_grad(); l = nn.functional.cross_entropy(m(x), y); l.backward(); o.step(); yield l.detach()
m = make(); g = steps(m, torch.optim.SGD(m.parameters(), 0.1))
for b in data(): next(g); l = g.send(b)
g.close(); print(l.item(), total(m))""",
    "asyncio queue between loading and training": """
import asyncio
async def load(q):
    for b in data(): await q.put(b); await asyncio.sleep(0)
    await q.put(None)
async def main():
    q = asyncio.Queue(4); m = make(); o = torch.optim.Adam(m.parameters(), 1e-2); t = asyncio.create_task(load(q))
    while (b := await q.get()) is not None: o.zero_grad(); l = nn.functional.cross_entropy(m(b[0]), b[1]); l.backward(); o.step()
    await t; print(l.item(), total(m))
asyncio.run(main())""",
    "trains in atexit": "import atexit; atexit.register(lambda: (fit(make()), sys.stdout.flush())); print('registered', flush=True)",
    "chdir, and both streams into a file": """
os.makedirs('outputs/1'); os.chdir('outputs/1'); keep = os.dup(1), os.dup(2); f = os.open('log', os.O_CREAT | os.O_WRONLY)
os.dup2(f, 1); os.dup2(f, 2); m = fit(make()); os.dup2(keep[0], 1); os.dup2(keep[1], 2); print(total(m), open('log').read())""",
    "a pool evaluates beside the training": """
import multiprocessing as mp
def ev(state):
    m = make(); m.load_state_dict(state); m.eval()
    with torch.no_grad(): return sum(nn.functional.cross_entropy(m(x), y).item() for x, y in data())
if __name__ == '__main__':
    m = make()
    with mp.get_context('fork').Pool(2) as pool:
        for e in range(3): fit(m, epochs=1); print(pool.apply(ev, ({n: v.clone() for n, v in m.state_dict().items()},)), flush=True)""",
    "signals save checkpoints": """
import signal
m = make(); o = torch.optim.SGD(m.parameters(), 0.1); saved = []
def save(*_): saved.append(total(m)); torch.save({'m': m.state_dict(), 'o': o.state_dict()}, 'c.pt')
signal.signal(signal.SIGUSR1, save); n = [0]
def each(l):
    n[0] += 1
    if n[0] % 10 == 0: os.kill(os.getpid(), signal.SIGUSR1)
fit(m, o, each=each); print(saved)""",
    "a unittest trains in a pool of threads": """
import unittest, concurrent.futures as cf
class T(unittest.TestCase):
    def test_fit(self):
        ms = [make() for _ in range(2)]
        with cf.ThreadPoolExecutor(1) as ex: self.assertEqual(len(list(ex.map(fit, ms))), 2)
        print([total(m) for m in ms]); self.assertLess(total(ms[0]), 1)
unittest.main(argv=['x'])""",
}
_DDP = """import torch.distributed as dist
dist.init_process_group('gloo'); rank = dist.get_rank(); torch.manual_seed(0); m = nn.parallel.DistributedDataParallel(make()); o = torch.optim.SGD(m.parameters(), 0.1)
for x, y in data(): o.zero_grad(); l = nn.functional.cross_entropy(m(x), y); l.backward(); o.step()"""
CASES = {name: source.replace("__DDP__", _DDP) for name, source in _CODES.items()}
