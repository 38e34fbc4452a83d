//! The declaration of the plugin `cuda`: options -> a [`CudaBackend`] or an [`Nccl`].

use espalier_host_device::HostOptions;
use espalier_interface::format::DeviceCode;
use espalier_interface::{Component, Instance, OptionKind, OptionSpec, Role};

use crate::CudaBackend;
use crate::nccl::Nccl;
use crate::settings::ArchPath;

const CACHE_DIR: OptionSpec = OptionSpec {
    name: "cache_dir",
    kind: OptionKind::TEXT,
    default: "null",
    range: "",
    doc: "folder of compiled kernels; unset: espalier/cuda in XDG_CACHE_HOME or ~/.cache",
};

const KERNELS: OptionSpec = OptionSpec {
    name: "kernels",
    kind: OptionKind::TEXT,
    default: "null",
    range: "",
    doc: "folder of kernels that came compiled, used whatever NVRTC made them; never written",
};

const CUDA: Component = Component {
    name: "cuda",
    role: Role::BACKEND,
    doc: "NVIDIA's cards from compute capability 8.0 on; computes in bf16 or f32",
    options: &[
        OptionSpec {
            name: "libraries",
            kind: OptionKind::TEXT,
            default: "null",
            range: "",
            doc: "folder of libcuda, libnvrtc and libcublasLt; unset: where the system, CUDA_HOME or Python's packages of NVIDIA have them",
        },
        CACHE_DIR,
        OptionSpec {
            name: "products",
            kind: OptionKind::TEXT,
            default: "\"auto\"",
            range: "auto | cublaslt | own",
            doc: "what computes products of bf16: cuBLASLt, kernels of the backend's own, or auto: cuBLASLt where it is installed",
        },
        KERNELS,
        OptionSpec {
            name: "arch_path",
            kind: OptionKind::TEXT,
            default: r#""auto""#,
            range: ArchPath::RANGE,
            doc: "the kind of card that kernels are made for; auto: the card's own",
        },
        OptionSpec {
            name: "host_decode",
            kind: OptionKind::BOOL,
            default: "false",
            range: "",
            doc: "decode on the processor, at each use, weights of quantizers that have neither a described format nor device code; slow",
        },
        HostOptions::DEVICE_MEMORY,
    ],
    capabilities: &[("compute", "bf16,f32"), (DeviceCode::CAPABILITY, "cuda")],
    create: |options, services| {
        let backend = CudaBackend::new(options, services)?;
        Ok(Instance::Backend(Box::new(backend)))
    },
};

const NCCL: Component = Component {
    name: "nccl",
    role: Role::COLLECTIVE,
    doc: "joins ranks with a card of NVIDIA each",
    options: &[
        OptionSpec {
            name: "libraries",
            kind: OptionKind::TEXT,
            default: "null",
            range: "",
            doc: "folder of libnccl, libcuda and libnvrtc; unset: where the system, CUDA_HOME or Python's packages of NVIDIA have them",
        },
        CACHE_DIR,
        KERNELS,
    ],
    capabilities: &[("memory", "cuda")],
    create: |options, services| {
        let collective = Nccl::new(options, services)?;
        Ok(Instance::Collective(Box::new(collective)))
    },
};

espalier_interface::declare_plugin! { name: "cuda", components: &[CUDA, NCCL] }
