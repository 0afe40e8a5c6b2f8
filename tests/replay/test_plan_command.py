"""`kvlife plan`: what it prints, as a table, as JSON, as a comparison, and what it refuses."""

import json
import os
import subprocess
import sys
import time

import pytest
import recorded_runs as made

from kvlife.replay.planning.configuring import read_request
from kvlife.replay.planning.plan_options import PlanOptions
from kvlife.sizing.ranks import plan_pipeline

GIB = 1 << 30
LLAMA = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
GPT_OSS = {
    "head_dim": 64,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "sliding_window": 128,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
MAX_COMMAND_S = 0.5
MAX_PLAN_S = 0.05
NUM_RUNS = 5


@pytest.fixture
def ask(tmp_path, capsys):
    """Ask for a plan of a config, and get the status, the output and the complaints."""

    def ask(config, *options):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        return made.ran(capsys, "plan", "--config", path, *options)

    return ask


@pytest.fixture
def answer(ask):
    """Ask with --json, and get the object."""

    def answer(config, *options):
        status, out, err = ask(config, *options, "--json")
        assert (status, err) == (0, "")
        return json.loads(out)

    return answer


# 16 GiB, half of it for weights and pools, 4 GiB taken: 4 GiB are available.
FOUR = ("--gpu-memory", "16GiB", "--weights", "4GiB", "--mem-fraction", "0.5")


def test_a_plan_as_an_object(answer):
    """2,048 pages of 16 x 131,072 bytes, one reserved; every number stands there, and why."""
    plan = answer(LLAMA, *FOUR)
    assert plan["max_total_num_tokens"] == 2_047 * 16
    assert plan["max_running_requests"] == 2_048
    assert (plan["available_bytes"], plan["left_over_bytes"]) == (4 * GIB, 0)
    assert plan["pool_config"]["num_pages"] == 2_048
    assert [buffer["num_bytes"] for buffer in plan["buffers"]] == [2 * GIB, 2 * GIB]
    figures = {figure["name"]: figure for figure in plan["figures"]}
    assert figures["available_bytes"]["inputs"] == {
        "free_bytes": 12 * GIB,
        "pre_load_bytes": 16 * GIB,
        "mem_fraction": 0.5,
        "reservations": 0,
    }
    assert figures["max_total_num_tokens"]["bound"] == "the budget"


def test_free_and_weights_say_the_same(answer):
    """12 GiB free is 4 GiB of weights."""
    free = ("--gpu-memory", "16GiB", "--free", "12GiB", "--mem-fraction", "0.5")
    assert answer(LLAMA, *FOUR) == answer(LLAMA, *free)


def test_gib_and_gb_differ(answer):
    """1 GB is 7% less than 1 GiB."""
    options = ("--gpu-memory", "16GiB", "--mem-fraction", "0.5", "--free")
    assert answer(LLAMA, *options, "9GB")["available_bytes"] == 9 * 10**9 - 8 * GIB
    assert answer(LLAMA, *options, "9GiB")["available_bytes"] == GIB


def test_a_plan_as_a_table(ask):
    """What fits, the pools with what stops them, the buffers, and each figure in numbers."""
    status, out, _ = ask(GPT_OSS, *FOUR)
    assert status == 0
    # 7,281 pages: 2 reserved, 4,044 full and floor(3,235.2) window pages.
    assert "fits        64,704 tokens, 2,048 requests at once, in bf16" in out
    assert "available   4,294,967,296 bytes, 4.00 GiB (4.29 GB)" in out
    rows = [tuple(line.split("  ")) for line in out.splitlines()]
    rows = [tuple(cell.strip() for cell in row if cell.strip()) for row in rows]
    assert ("full", "64,704", "4,045", "36,864", "2,385,838,080", "the budget") in rows
    swa = ("swa, window 128", "51,760", "3,236", "36,864", "1,908,670,464", "its ratio to 'full'")
    assert swa in rows
    assert "18 x 4045 x 16 x 8 x 64  bfloat16" in out
    assert "    = 12,884,901,888 - ceil(17,179,869,184 x (1 - 0.5)) - 0" in out


def test_the_state_pool_has_a_line(ask):
    """Its slots, their bytes, and what stops them."""
    config = {
        **LLAMA,
        "layer_types": ["linear_attention", "full_attention"] * 16,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
    }
    _, out, _ = ask(config, *FOUR)
    # 16 layers of 49,152 + 2,097,152 bytes; 9 parts in 19 of 4 GiB hold 59 of them.
    assert "58 slots of 34,340,864" in out
    assert "the state share of the budget" in out


def test_one_figure_is_explained(ask):
    """With the figures that it follows from, each once, further in."""
    status, out, _ = ask(GPT_OSS, *FOUR, "--explain", "swa_max_total_num_tokens")
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "swa_max_total_num_tokens: 51,760 tokens"
    assert "  num_tokens_swa: 51,760 tokens" in lines
    assert "      = floor(64,704 / 16 x 0.8) x 16" in lines
    assert "    max_total_num_tokens: 64,704 tokens" in lines
    assert sum("available_bytes:" in line for line in lines) == 1
    assert not any("row_capacity" in line for line in lines)


def test_the_planned_bytes_are_a_sum(ask):
    """Of the pools: 4,045 pages of the full one and 3,236 of the window's, of 589,824 bytes."""
    _, out, _ = ask(GPT_OSS, *FOUR, "--explain", "planned_bytes")
    assert out.splitlines()[:3] == [
        "planned_bytes: 4,294,508,544 bytes",
        "    = bytes_of_full + bytes_of_swa",
        "    = 2,385,838,080 + 1,908,670,464",
    ]


def test_one_figure_as_an_object(ask):
    """--explain with --json has the same figures in the same order."""
    _, out, _ = ask(LLAMA, *FOUR, "--explain", "available_bytes", "--json")
    (figure,) = json.loads(out)
    assert (figure["name"], figure["value"], figure["unit"]) == (
        "available_bytes", 4 * GIB, "bytes"
    )  # fmt: skip


def test_an_unknown_figure_lists_the_known(ask):
    """And nothing is printed."""
    status, out, err = ask(LLAMA, *FOUR, "--explain", "tokens")
    assert (status, out) == (2, "")
    assert "no figure 'tokens': the figures of this plan are available_bytes, " in err


def test_a_sweep_over_dtypes(answer):
    """Half the bytes are twice the tokens, beside the reserved page; the asked one is marked."""
    found = answer(LLAMA, *FOUR, "--sweep", "dtype")
    assert found["sweep"] == "dtype"
    tokens = {each["value"]: each["plan"]["max_total_num_tokens"] for each in found["variants"]}
    assert tokens["bf16"] == 2_047 * 16
    assert tokens["fp8_e4m3"] == 4_095 * 16
    assert tokens["mxfp8"] == (4 * GIB // (16 * 67_584) - 1) * 16
    assert tokens["nvfp4"] == (4 * GIB // (16 * 36_864) - 1) * 16
    assert [each["value"] for each in found["variants"] if each["asked"]] == ["bf16"]


def test_a_sweep_over_tensor_parallelism_spreads_the_weights(answer):
    """4 GiB of weights on one GPU are 1 GiB on each of four, and heads are not split below one."""
    found = answer(LLAMA, *FOUR, "--sweep", "tp")
    plans = {each["value"]: each["plan"] for each in found["variants"]}
    assert {value: plan["available_bytes"] for value, plan in plans.items()} == {
        "1": 4 * GIB, "2": 6 * GIB, "4": 7 * GIB, "8": 8 * GIB - GIB // 2, "16": 8 * GIB - GIB // 4
    }  # fmt: skip
    each = {value: plan["pools"][0]["bytes_per_token"] for value, plan in plans.items()}
    assert each == {"1": 131_072, "2": 65_536, "4": 32_768, "8": 16_384, "16": 16_384}


def test_a_sweep_over_contexts(answer):
    """Powers of two from 4,096 up to the model's: requests follow, tokens do not."""
    found = answer(LLAMA, *FOUR, "--sweep", "context")
    plans = {each["value"]: each["plan"] for each in found["variants"]}
    assert list(plans) == ["4,096", "8,192", "16,384", "32,768", "65,536", "131,072"]
    assert {plan["max_total_num_tokens"] for plan in plans.values()} == {2_047 * 16}
    assert plans["4,096"]["max_running_requests"] == 4_094  # int(32,752 / 4,096 x 512)
    assert plans["131,072"]["max_running_requests"] == 2_048


def test_a_sweep_over_page_sizes(ask):
    """What cannot be planned is told below the table, the rest stands in it."""
    status, out, _ = ask(LLAMA, *FOUR, "--sweep", "page-size", "--page-size", "512")
    assert status == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:7]] == ["1", "16", "32", "64", "128", "256"]
    assert any(line.startswith("512: page_size of 'full' must be") for line in lines)


def test_a_sweep_without_a_single_plan_is_refused(ask):
    """Nothing is compared where nothing fits."""
    status, out, err = ask(LLAMA, *FOUR, "--sweep", "dtype", "--reserve", "8GiB")
    assert (status, out) == (2, "")
    assert "none of these can be planned; bf16: " in err


def test_a_sweep_explains_no_figure(ask):
    """Each of several plans has its own."""
    status, _, err = ask(LLAMA, *FOUR, "--sweep", "dtype", "--explain", "available_bytes")
    assert status == 2
    assert "leave one" in err


def test_every_option_reaches_the_plan(answer):
    """What is asked for is what the figures say."""
    plan = answer(
        GPT_OSS, *FOUR, "--max-running", "64", "--dp", "2", "--tp", "4", "--page-size", "32",
        "--context", "65536", "--max-tokens", "50000", "--window-by-requests",
        "--eviction-interval", "2", "--chunk-tokens", "1024", "--without-prefix-cache",
        "--without-overlap", "--dtype", "fp8_e4m3", "--reserve", "1MiB", "--draft", "eagle",
        "--draft-layers", "2", "--draft-tokens", "4", "--draft-steps", "3", "--draft-topk", "2",
    )  # fmt: skip
    assert plan["max_running_requests"] == 32
    assert plan["max_total_num_tokens"] == 49_984  # whole pages of 32
    assert plan["dtype"] == "fp8_e4m3"
    assert plan["available_bytes"] == 4 * GIB - (1 << 20)
    # A tree of 2 branches with ceil((31 + 3) / 32) = 2 pages each: 128, doubled.
    assert plan["row_capacity"] == 65_536 + 256
    figures = {figure["name"]: figure for figure in plan["figures"]}
    assert figures["held_window_len_swa"]["inputs"] == {
        "window": 128, "window_pages": 4, "eviction_interval": 2, "draft_tokens": 4,
        "ahead_len": 252, "page_size": 32,
    }  # fmt: skip
    assert figures["needed_window_len_swa"]["inputs"]["chunks_in_flight"] == 1
    # 18 and 2 layers of 4 heads of 64, K and V, a byte each.
    assert figures["bytes_per_token_full"]["value"] == 20 * 4 * 64 * 2


def test_what_a_config_lacks_may_be_asked_for(ask, answer):
    """gpt-oss is released without a dtype, and mamba-2 without a context."""
    config = {key: value for key, value in GPT_OSS.items() if key != "torch_dtype"}
    assert "the config lacks torch_dtype" in ask(config, *FOUR)[2]
    assert answer(config, *FOUR, "--model-dtype", "bfloat16") == answer(GPT_OSS, *FOUR)
    mamba = {
        "num_hidden_layers": 64, "hidden_size": 4096, "num_heads": 128, "head_dim": 64,
        "n_groups": 8, "state_size": 128, "conv_kernel": 4, "torch_dtype": "bfloat16",
    }  # fmt: skip
    assert "the config lacks max_position_embeddings" in ask(mamba, *FOUR)[2]
    plan = answer(mamba, *FOUR, "--context", "65536")
    # 64 layers of 3 x 10,240 inputs in bf16 and 128 x 64 x 128 values in fp32.
    assert plan["state"]["slot_bytes"] == 64 * (61_440 + 4_194_304)
    assert plan["context_len"] == 65_536


def test_the_file_of_quantisation_beside_the_config(tmp_path, answer):
    """ModelOpt writes there that KV is fp8, and `auto` takes it."""
    assert answer(LLAMA, *FOUR)["dtype"] == "bf16"
    beside = tmp_path / "hf_quant_config.json"
    beside.write_text('{"quantization": {"kv_cache_quant_algo": "FP8"}}', encoding="utf-8")
    plan = answer(LLAMA, *FOUR)
    assert plan["dtype"] == "fp8_e4m3"
    assert "kv_cache_quant_algo is 'FP8'" in plan["notes"][0]
    assert answer(LLAMA, *FOUR, "--dtype", "bf16")["dtype"] == "bf16"


def test_the_stages_of_a_pipeline(answer):
    """Each rank's layers are its own, the tokens those of the least."""
    options = (*FOUR, "--pp", "3", "--pp-rank")
    plans = [answer(LLAMA, *options, str(rank)) for rank in range(3)]
    assert [plan["pools"][0]["bytes_per_token"] for plan in plans] == [45_056, 45_056, 40_960]
    assert len({plan["max_total_num_tokens"] for plan in plans}) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--gpu-memory is missing"),
        (("--gpu-memory", "80GiB"), "give --weights 15GiB (on each GPU), or --free 64GiB"),
        ((*FOUR, "--free", "1GiB"), "--free and --weights say the same"),
        (("--gpu-memory", "80", "--weights", "1GiB"), "--gpu-memory '80': a size needs its unit"),
        (("--gpu-memory", "1GB", "--weights", "1GiB"), "is more than --gpu-memory 1GB"),
        ((*FOUR[:4], "--mem-fraction", "1.5"), "mem_fraction must be between 0 and 1"),
        ((*FOUR, "--tp", "3"), "tp"),
        ((*FOUR, "--page-size", "0"), "page_size must be a whole number of at least 1"),
        # Neither a draft nor a window has a use for these, and they are none all the same.
        ((*FOUR, "--draft-tokens", "0"), "--draft-tokens must be a whole number of at least 1"),
        ((*FOUR, "--draft-topk", "-1"), "--draft-topk must be a whole number of at least 1"),
        ((*FOUR, "--chunk-tokens", "0"), "chunk_len must be a whole number of at least 1"),
        ((*FOUR, "--eviction-interval", "0"), "eviction_interval must be a whole number"),
        ((*FOUR, "--window-by-requests", "--window-ratio", "0"), "must be a number above 0"),
        ((*FOUR, "--dtype", "fp7"), "unknown KV dtype 'fp7'"),
        ((*FOUR, "--pp-rank", "1"), "pp_rank must be in [0, 1)"),
        ((*FOUR, "--draft-layers", "1"), "give --draft too"),
        ((*FOUR, "--draft", "oracle"), "unknown draft 'ORACLE'"),
        ((*FOUR, "--draft", "dflash"), "give its geometry"),
        ((*FOUR, "--reserve", "4GiB"), "The least that would do is 4,194,304 bytes available"),
    ],
)
def test_what_cannot_be_planned(ask, options, said):
    """Exit status 2, one message, and nothing on the output."""
    status, out, err = ask(LLAMA, *options)
    assert (status, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is no JSON"),
        (b"[1]", "holds no JSON object"),
        (b"\xff\xfe", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"{}", "the config lacks"),
    ],
)
def test_a_file_that_is_no_config(tmp_path, capsys, content, said):
    """The file is named, with what is wrong with it."""
    path = tmp_path / "config.json"
    path.write_bytes(content)
    status, _, err = made.ran(capsys, "plan", "--config", path, *FOUR)
    assert status == 2
    assert said in err
    status, _, err = made.ran(capsys, "plan", "--config", tmp_path, *FOUR)
    assert (status, "is no file" in err) == (2, True)


def test_a_plan_takes_at_most_half_a_second_and_no_torch(tmp_path):
    """The whole command in a fresh interpreter, in seconds of a processor: the least of five."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GPT_OSS), encoding="utf-8")
    command = [sys.executable, "-m", "kvlife.replay", "plan", "--config", str(path), *FOUR]
    # It waits for nothing, so this is what it takes where no other work is in its way.
    taken = [seconds_of(command) for _ in range(NUM_RUNS)]
    assert min(taken) <= MAX_COMMAND_S, taken
    program = (
        "import sys; from kvlife.replay.cli import main; main(sys.argv[1:]);"
        "sys.exit(bool({'torch', 'triton', 'numpy', 'kvlife.engine'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program, *command[3:]], capture_output=True, check=True)


def seconds_of(command):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    subprocess.run(command, env=environment, capture_output=True, check=True)
    after = os.times()
    spent = (
        after.children_user - before.children_user,
        after.children_system - before.children_system,
    )
    return sum(spent)


def test_planning_takes_at_most_50_ms(tmp_path):
    """Reading the config and planning it: the least of several runs in this process."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GPT_OSS), encoding="utf-8")
    options = PlanOptions(config=path, gpu_memory="16GiB", weights="4GiB", draft="EAGLE", pp=4)
    taken = []
    for _ in range(NUM_RUNS):
        start = time.perf_counter()
        request = read_request(options)
        assert len(plan_pipeline(request.configurator, request.gpu_bytes)) == 4
        taken.append(time.perf_counter() - start)
    assert min(taken) <= MAX_PLAN_S, taken
