"""The layers of AutoGPTQ, GPTQModel and AutoAWQ, as their packages have them, without installing these.

Their setup asks for CUDA, and what they import as a whole for packages of which packing needs none. So the archives of
`quantizer_archives.txt` are downloaded by pip, once, into the cache directory of the user (`XDG_CACHE_HOME`), and only
the modules below are loaded from there, on the CPU. Packages that these import without calling them are stubs where
Python lacks them.
"""

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import re
import subprocess
import sys
import tarfile
import types
from pathlib import Path
from unittest.mock import MagicMock

import torch

ARCHIVES = Path(__file__).with_name("quantizer_archives.txt")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "espalier-quantizer-archives"
STUBS = ("device_smi", "logbar", "threadpoolctl", "torchao")
BITS = 4


class Stub(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=f"{self.__name__}.{name}")


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `STUBS` where nothing else does."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in STUBS:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        pass


@contextlib.contextmanager
def stubs():
    """What is imported meanwhile may import stubs; what is imported later sees none."""
    finder, level, before = Stubs(), logging.root.manager.disable, set(sys.modules)
    sys.meta_path.append(finder)
    logging.disable(logging.WARNING)
    try:
        if "pcre" not in sys.modules and importlib.util.find_spec("pcre") is None:
            pcre = types.ModuleType("pcre")
            vars(pcre).update({name: value for name, value in vars(re).items() if not name.startswith("__")})
            pcre.Flag = re.RegexFlag
            sys.modules["pcre"] = pcre
        yield
    finally:
        logging.disable(level)
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if isinstance(sys.modules[name], Stub):
                del sys.modules[name]


@functools.cache
def sources():
    """The folder with the unpacked archives."""
    names = re.findall(r"^([\w-]+)==(\S+)", ARCHIVES.read_text(), re.MULTILINE)
    folders = [f"{name.replace('-', '_')}-{version}" for name, version in names]
    if not all((CACHE / folder / "unpacked").exists() for folder in folders):
        CACHE.mkdir(parents=True, exist_ok=True)
        # With this a package tells pip about itself without a compiler for CUDA.
        environment = {**os.environ, "BUILD_CUDA_EXT": "0"}
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*command, "--dest", CACHE, "-r", ARCHIVES], env=environment, check=True)
        for folder in folders:
            with tarfile.open(CACHE / f"{folder}.tar.gz") as archive:
                archive.extractall(CACHE, filter="data")
            (CACHE / folder / "unpacked").touch()
    return CACHE


def bare(archive, *packages):
    """Packages whose modules can be imported and whose own `__init__` is not run."""
    for name in packages:
        module = types.ModuleType(name)
        module.__path__ = [str(sources() / archive / name.replace(".", "/"))]
        sys.modules[name] = module


@functools.cache
def autogptq():
    """AutoGPTQ's layer for groups in their order, that by `g_idx`, and its quantizers."""
    bare("auto_gptq-0.7.1", "auto_gptq", "auto_gptq.quantization")
    with stubs():
        load = importlib.import_module
        return types.SimpleNamespace(
            Layer=load("auto_gptq.nn_modules.qlinear.qlinear_cuda_old").QuantLinear,
            LayerByIndex=load("auto_gptq.nn_modules.qlinear.qlinear_cuda").QuantLinear,
            Quantizer=load("auto_gptq.quantization.quantizer").Quantizer,
            GPTQ=load("auto_gptq.quantization.gptq").GPTQ,
        )


@functools.cache
def gptqmodel():
    """GPTQModel's layers in torch, its conversions of zero points, and its config."""
    folders = ("models", "adapter", "nn_modules", "quantization", "looper")
    bare("gptqmodel-7.7.0", "gptqmodel", *(f"gptqmodel.{folder}" for folder in folders))
    root = sys.modules["gptqmodel"]
    root.DEBUG_ON, root.DEVICE_THREAD_POOL, root.get_device_thread_pool = False, None, None
    with stubs():
        load = importlib.import_module
        config = load("gptqmodel.quantization.config")
        names = {name: value for name, value in vars(config).items() if not name.startswith("__")}
        vars(sys.modules["gptqmodel.quantization"]).update(names)
        conversion = load("gptqmodel.utils.model")
        return types.SimpleNamespace(
            Layer=load("gptqmodel.nn_modules.qlinear.torch").TorchLinear,
            AwqLayer=load("gptqmodel.nn_modules.qlinear.torch_awq").AwqTorchLinear,
            to_first_format=conversion.convert_gptq_v2_to_v1_format_module,
            to_second_format=conversion.convert_gptq_v1_to_v2_format_module,
            Config=config.QuantizeConfig,
            version=load("gptqmodel.version").__version__,
        )


@functools.cache
def autoawq():
    """AutoAWQ's layer, its decoding and its config."""
    bare("autoawq-0.2.9", "awq", "awq.models", "awq.modules", "awq.modules.linear")
    with stubs():
        load = importlib.import_module
        return types.SimpleNamespace(
            Layer=load("awq.modules.linear.gemm").WQLinear_GEMM,
            dequantize=load("awq.utils.packing_utils").dequantize_gemm,
            Config=load("awq.models._config").AwqConfig,
        )


def filled(layer, tensors):
    """A layer with the tensors of a file in place of its buffers, in their own dtypes."""
    names = {name for name, _ in layer.named_buffers() if not name.startswith("wf_")}
    if names != set(tensors):
        sys.exit(f"{type(layer).__module__} has {sorted(names)}, the file {sorted(tensors)}")
    for name, tensor in tensors.items():
        if getattr(layer, name).shape != tensor.shape:
            sys.exit(f"{name}: {type(layer).__module__} has {getattr(layer, name).shape}, the file {tensor.shape}")
        setattr(layer, name, tensor.clone())
    return layer


def extents(tensors):
    """Inputs and outputs of a layer in files of GPTQ."""
    return len(tensors["g_idx"]), tensors["scales"].shape[1]


def decoded_by_autogptq(tensors, group_size, layer="Layer"):
    """The weight [out, in] by the layer's products with unit vectors, which are exact."""
    layer = filled(getattr(autogptq(), layer)(BITS, group_size, *extents(tensors), bias=False), tensors)
    with torch.no_grad():
        return layer(torch.eye(layer.infeatures, dtype=layer.scales.dtype)).t().contiguous()


def gptqmodel_layer(shape, group_size, symmetric=False, kind="Layer"):
    """An empty layer of GPTQModel for `shape`, inputs and outputs."""
    sizes = dict(zip(("in_features", "out_features"), shape))
    layer = getattr(gptqmodel(), kind)(
        bits=BITS, group_size=group_size, sym=symmetric, desc_act=False, bias=False, register_buffers=True, **sizes
    )
    return layer.eval()


def decoded_by_gptqmodel(tensors, group_size, checkpoint_format):
    """The weight [out, in]."""
    layer = filled(gptqmodel_layer(extents(tensors), group_size), tensors)
    if checkpoint_format == "gptq":
        gptqmodel().to_second_format(layer, BITS, torch.int32)
    return layer.dequantize_weight().t().contiguous()


def decoded_by_autoawq(tensors, group_size):
    """The weight [out, in], by the function that the layer decodes with where it has no kernel."""
    outputs = tensors["scales"].shape[1]
    layer = autoawq().Layer(BITS, group_size, len(tensors["qweight"]), outputs, False, "cpu")
    layer = filled(layer, tensors)
    weight = autoawq().dequantize(layer.qweight, layer.qzeros, layer.scales, BITS, layer.group_size)
    return weight.t().contiguous()
