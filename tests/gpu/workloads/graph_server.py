"""Continuous batching by transformers with CUDA graphs: a small Llama with random weights answers random prompts.

The last line printed is JSON: the number of generated tokens and the seconds they took.
"""

import json
import random
import sys
import time

try:
    import torch
    import transformers
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
except ImportError as error:
    print(f"not installed: {error}", file=sys.stderr)
    sys.exit(77)


def main() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        num_hidden_layers=8, hidden_size=1024, intermediate_size=2816, num_attention_heads=16, num_key_value_heads=4,
        vocab_size=32000)
    model = LlamaForCausalLM(config).cuda().bfloat16().eval()
    model.set_attn_implementation("paged|sdpa")
    choose = random.Random(1)
    prompts = [[choose.randrange(5, 31000) for _ in range(choose.randrange(16, 256))] for _ in range(48)]
    # Newer versions take the options of batching apart, and ignore them in the other configuration.
    batching = {"use_cuda_graph": True, "num_blocks": 1024, "max_batch_tokens": 256}
    apart = hasattr(transformers, "ContinuousBatchingConfig")
    generation = GenerationConfig(
        max_new_tokens=48, do_sample=False, eos_token_id=31999, pad_token_id=0, **({} if apart else batching))
    more = {"continuous_batching_config": transformers.ContinuousBatchingConfig(**batching)} if apart else {}
    begun = time.perf_counter()
    results = model.generate_batch(inputs=prompts, generation_config=generation, **more)
    seconds = time.perf_counter() - begun
    tokens = sum(len(result.generated_tokens) for result in results.values())
    print(json.dumps({"tokens": tokens, "seconds": seconds}))


if __name__ == "__main__":
    main()
