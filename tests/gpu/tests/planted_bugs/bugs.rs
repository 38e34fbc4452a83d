//! The planted bugs: what is wrong, the op whose check finds it, and the order of threads.

/// A bug.
pub struct Bug {
    /// What is wrong.
    pub what: &'static str,
    /// The check.
    pub op: &'static str,
    /// How the names of the cases begin that find it.
    pub cases: &'static str,
    /// The order of threads.
    pub threads: &'static str,
    /// The kernel or header.
    pub file: &'static str,
    /// A text that it has once.
    pub from: &'static str,
    /// What is in its place.
    pub to: &'static str,
}

/// A bug of products by cuBLASLt, as the mock library plants it.
pub struct LibraryBug {
    /// What is wrong, by the mock library's name for it.
    pub name: &'static str,
    /// The check.
    pub op: &'static str,
    /// How the names of the cases begin that find it.
    pub cases: &'static str,
}

/// Threads take turns from the first to the last, and from the last to the first.
pub const FORWARD: &str = "forward";
const BACKWARD: &str = "backward";
/// A warp runs as far as it can, and copies arrive at once.
const GREEDY: &str = "greedy";

/// Cases of attention on tensor cores: H 4, J 2, K 16; K 64 with a cap; K 32 with a window and a
/// cap; K 48 with a window, in which tokens see later ones.
const SHORT: &str = "bf16, sequences of [0, 65, 1]";
const CAP: &str = "bf16, sequences of [141]";
const WINDOW: &str = "bf16, sequences of [128, 0, 290]";
const LATER: &str = "bf16, sequences of [150]";
/// Cases of products whose rows are multiples of 16 bytes.
const ALIGNED: &str = "bf16, T 35";

/// The same, added to what lies in the memory of the result.
const IN_PLACE: &str = "bf16, T 34";

const ATTENTION: &str = "op.attention";
const GRADIENT: &str = "op.attention_backward";

const FLASH: &str = "flash.cuh";
const FORWARD_PASS: &str = "flash_forward.cu";
const BY_QUERIES: &str = "flash_dq.cu";
const BY_KEYS: &str = "flash_dkv.cu";
/// What begins a step through the tiles of a kernel of attention.
const STEP: &str = "copy_async_wait<0>();\n    __syncthreads();  // behind the wait, and before the other stage is filled again";
const PRODUCT: &str = "product_bf16.cu";
pub const FINISH: &str = "finish.cu";

const fn library_bug(name: &'static str, op: &'static str, cases: &'static str) -> LibraryBug {
    LibraryBug { name, op, cases }
}

/// The bugs of products by cuBLASLt.
pub const LIBRARY_BUGS: &[LibraryBug] = &[
    library_bug("leading", "op.linear", ALIGNED),
    library_bug("transpose", "op.linear_input_backward", ALIGNED),
    library_bug("workspace", "op.linear", ALIGNED),
    library_bug("bias", "op.linear", ALIGNED),
    library_bug("early", "op.linear", ALIGNED),
    library_bug("algorithm", "op.linear_weight_backward", "bf16"),
    library_bug("alpha", "op.linear_weight_backward.2", ALIGNED),
    library_bug("beta", "op.linear_weight_backward", ALIGNED),
    library_bug("beta", "op.linear.2", IN_PLACE),
];

const fn bug(
    what: &'static str,
    (op, cases, threads): (&'static str, &'static str, &'static str),
    file: &'static str,
    [from, to]: [&'static str; 2],
) -> Bug {
    Bug {
        what,
        op,
        cases,
        threads,
        file,
        from,
        to,
    }
}

/// The bugs.
#[rustfmt::skip] // A table.
pub const BUGS: &[Bug] = &[
    // Waits and barriers.
    bug("no wait for a stage", (ATTENTION, SHORT, FORWARD), FORWARD_PASS, [STEP, "__syncthreads();"]),
    bug("no barrier behind the wait", (ATTENTION, CAP, FORWARD), FORWARD_PASS, [STEP, "copy_async_wait<0>();"]),
    bug("no barrier before a stage is filled again", (ATTENTION, CAP, GREEDY), FORWARD_PASS,
        [STEP, "copy_async_wait<0>();"]),
    bug("no barrier before rows are stored", (ATTENTION, SHORT, FORWARD), FORWARD_PASS,
        ["sum, factor);\n  __syncthreads();", "sum, factor);"]),
    bug("no barrier behind the wait", (GRADIENT, CAP, FORWARD), BY_QUERIES, [STEP, "copy_async_wait<0>();"]),
    bug("no barrier before a stage is filled again", (GRADIENT, CAP, GREEDY), BY_QUERIES,
        [STEP, "copy_async_wait<0>();"]),
    bug("no barrier before a stage is filled again", (GRADIENT, CAP, GREEDY), BY_KEYS,
        [STEP, "copy_async_wait<0>();"]),
    bug("numbers of the next stage put into this one", (GRADIENT, SHORT, FORWARD), BY_KEYS,
        ["numbers(step + 1)[threadIdx.x] = next", "numbers(step)[threadIdx.x] = next"]),
    bug("no wait for a stage", ("op.linear", ALIGNED, FORWARD), PRODUCT,
        ["copy_async_wait<1>();", "copy_async_wait<2>();"]),
    bug("no barrier before a stage is filled again", ("op.linear", ALIGNED, GREEDY), PRODUCT,
        ["__syncthreads();  // before the stage", "// before the stage"]),
    bug("no barrier behind the loads", ("op.matmul", "", FORWARD), "product_f32.cu",
        ["__syncthreads();\n#pragma unroll\n    for (int k", "\n#pragma unroll\n    for (int k"]),
    bug("no barrier before the next loads", ("op.matmul", "", GREEDY), "product_f32.cu",
        ["__syncthreads();\n  }\n#pragma unroll", "  }\n#pragma unroll"]),
    bug("no barrier before warps' sums are added", ("op.rms_norm", "", FORWARD), "element.cuh",
        ["= x;\n  __syncthreads();\n  T sum", "= x;\n  T sum"]),
    bug("no barrier before the next sum", ("op.rms_norm_backward", "", GREEDY), "element.cuh",
        ["sum += scratch[warp];\n  __syncthreads();", "sum += scratch[warp];"]),
    bug("no barrier behind the first write", ("op.embedding_backward", "", BACKWARD), "embedding.cu",
        ["*earlier = 0;\n  __syncthreads();", "*earlier = 0;"]),
    bug("no barrier behind the table of codes", ("op.linear", "", FORWARD), "decode.cuh",
        ["= from[k];\n  __syncthreads();", "= from[k];"]),
    bug("no barrier before a block's first", ("op.first_not_finite", "", FORWARD), "flat.cu",
        ["= i;\n  firsts[threadIdx.x] = own;\n  __syncthreads();", "= i;\n  firsts[threadIdx.x] = own;"]),
    // Masks and edges.
    bug("a query does not see itself", (ATTENTION, SHORT, FORWARD), FLASH,
        ["j < length && (!s.causal || j <= i)", "j < length && (!s.causal || j < i)"]),
    bug("a window of one token more", (ATTENTION, LATER, FORWARD), FLASH,
        ["j > i - s.window);\n}\n", "j >= i - s.window);\n}\n"]),
    bug("tiles on the diagonal without a mask", (ATTENTION, SHORT, FORWARD), FLASH,
        ["(!s.causal || last_j <= i) &&", "(!s.causal || j <= i) &&"]),
    bug("tiles at the window's edge left out", (ATTENTION, LATER, FORWARD), FLASH,
        ["last_j <= i - s.window))", "last_j <= last_i - s.window))"]),
    bug("keys beyond the sequence's end read", (ATTENTION, SHORT, FORWARD), FLASH,
        ["bool in = r < left;", "bool in = r <= left;"]),
    bug("rows beyond the sequence's end written", (ATTENTION, SHORT, FORWARD), FLASH,
        ["if (begin + row < length) *(uint4*)", "if (begin + row <= length) *(uint4*)"]),
    bug("blocks looked up in the sequence before", (ATTENTION, SHORT, FORWARD), FLASH,
        ["/ ROWS + middle <= number)", "/ ROWS + middle < number)"]),
    bug("queries at the window's end left out", (GRADIENT, WINDOW, FORWARD), BY_KEYS,
        ["end = part.begin + ROWS - 1 + s.window;", "end = part.begin + s.window;"]),
    bug("cached keys of one place less seen", ("op.attention_cached", "", FORWARD), "plain.cu",
        ["start.held + t - in.first, start", "start.held + t - in.first - 1, start"]),
    bug("elements beyond a row's end multiplied", ("op.linear", "bf16, T 33", FORWARD), PRODUCT,
        ["left < 8 ? (int)left : 8", "8"]),
    bug("depth beyond the end multiplied", ("op.matmul", "", FORWARD), "product_f32.cu",
        ["in = j0 + j < n.columns && k0 + l < n.depth;", "in = j0 + j < n.columns;"]),
    // Lanes, strides, heads.
    bug("a left matrix from wrong lanes", (ATTENTION, SHORT, FORWARD), FLASH,
        ["row + (lane & 15), 2 * d + (lane >> 4)", "row + (lane & 15), 2 * d + ((lane >> 3) & 1)"]),
    bug("the second matrix of a warp's rows read from the first", (ATTENTION, SHORT, FORWARD), FLASH,
        ["row = warp_row() + m * 16;", "row = warp_row();"]),
    bug("the second matrix of a warp's rows masked as the first", (GRADIENT, SHORT, FORWARD), BY_QUERIES,
        ["i = row + m * 16 + 8 * (r >> 1) + lane_row()", "i = row + 8 * (r >> 1) + lane_row()"]),
    bug("a right matrix's halves mixed", (ATTENTION, SHORT, FORWARD), FLASH,
        ["mma_bf16(sum[m][2 * n + 1], a[m], b[2], b[3]);", "mma_bf16(sum[m][2 * n + 1], a[m], b[1], b[3]);"]),
    bug("values not transposed", (ATTENTION, SHORT, FORWARD), FLASH,
        ["load_matrix4_transposed(b,", "load_matrix4(b,"]),
    bug("the stride of one head", (ATTENTION, SHORT, FORWARD), FLASH,
        ["from + (begin + row) * stride", "from + (begin + row) * D"]),
    bug("the wrong group of heads", (ATTENTION, SHORT, FORWARD), FORWARD_PASS,
        ["kv = head / (s.heads / s.kv_heads)", "kv = head % s.kv_heads"]),
    bug("a right matrix from wrong lanes", ("op.linear", ALIGNED, FORWARD), PRODUCT,
        ["j + (lane & 7) + ((lane >> 4) << 3)", "j + (lane & 7) + (((lane >> 3) & 1) << 3)"]),
    bug("a right matrix that is wide from wrong lanes", ("op.linear_input_backward", ALIGNED, FORWARD), PRODUCT,
        ["place<false>(k * 16 + (lane & 15)", "place<false>(k * 16 + (lane & 7)"]),
    bug("left matrices that are wide not transposed", ("op.linear_weight_backward", ALIGNED, FORWARD), PRODUCT,
        ["load_matrix4_transposed(x[p],", "load_matrix4(x[p],"]),
    // Sums.
    bug("rows faded by one another's factor", (ATTENTION, CAP, FORWARD), FORWARD_PASS,
        ["sum[m][n][r] *= fade[m][r >> 1];", "sum[m][n][r] *= fade[m][r & 1];"]),
    bug("the sum of weights not faded", (ATTENTION, CAP, FORWARD), FORWARD_PASS,
        ["total[h] *= fade[h];", ""]),
    bug("the largest logit of half a row", (ATTENTION, SHORT, FORWARD), FORWARD_PASS,
        ["next = fmaxf(next, exchange(next, 2));", ""]),
    bug("the sum of weights of half a row", (ATTENTION, SHORT, FORWARD), FORWARD_PASS,
        ["all += exchange(all, 2);", ""]),
    bug("the slope of the cap left out", (GRADIENT, CAP, FORWARD), BY_QUERIES,
        ["(dp[m][n][r] - mean[m][r >> 1]) * l.slope;", "(dp[m][n][r] - mean[m][r >> 1]);"]),
    bug("the gradient of the group's first head alone", (GRADIENT, SHORT, FORWARD), BY_KEYS,
        ["steps = group * ((", "steps = 1 * (("]),
    bug("a residual not added", ("op.linear.3", IN_PLACE, FORWARD), FINISH,
        ["if (e.residual) sum +=", "if (false) sum +="]),
    bug("the bias of the first of 8 columns", ("op.linear", ALIGNED, FORWARD), FINISH,
        ["sum += e.bias_f32[column];", "sum += e.bias_f32[j];"]),
    bug("the last chunk of rows lost", ("op.rms_norm_weight_backward", "", FORWARD), "column_sums.cu",
        ["k < chunks;", "k + 1 < chunks;"]),
    bug("the last of equal logits taken", ("op.cross_entropy", "", FORWARD), "rows.cu",
        ["a.most == b.most && a.first < b.first", "a.most == b.most && a.first > b.first"]),
    bug("a sum not faded to the larger logit", ("op.cross_entropy", "", FORWARD), "rows.cu",
        ["o.sum *= fade_of(o.most, next);", ""]),
    bug("packs after the first read from the first", ("op.swiglu", "", FORWARD), "packs.cuh",
        ["load_pack<N>(x + k * THREADS * N)", "load_pack<N>(x)"]),
    bug("the second of two bf16 lost", ("op.add", "bf16", FORWARD), "packs.cuh",
        ["bits_float(pair & 0xffff0000u)", "bits_float(pair << 16)"]),
    bug("packs that a thread keeps counted beyond the row", ("op.rms_norm", "", FORWARD), "rms_norm.cu",
        ["if (c < width) f(k, c);", "f(k, 0);"]),
    bug("the angles of a token's neighbour", ("op.rope", "", FORWARD), "rope.cu",
        ["(float)positions[begin + t]", "(float)positions[begin]"]),
    bug("a rotation in the same direction", ("op.rope_backward", "", FORWARD), "rope.cu",
        ["sinf(angle) * scaling * sign}", "sinf(angle) * scaling}"]),
    bug("the chunks behind the first lost", ("op.sum_squares", "", FORWARD), "flat.cu",
        ["int64_t begin = blockIdx.x * CHUNK, end = begin + CHUNK < n ? begin + CHUNK : n;",
         "int64_t begin = 0, end = CHUNK < n ? CHUNK : n;"]),
];
