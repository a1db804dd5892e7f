"""Built-in models by name: the sizes of their published `config.json`s, with the same keys."""

from __future__ import annotations

from typing import Any

_BLOCK_FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def _decoder(
    model_type: str,
    hidden: int,
    intermediate: int,
    layers: int,
    heads: int,
    kv_heads: int,
    vocabulary: int,
    **more: Any,
) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        "torch_dtype": "bfloat16",
        **more,
    }


def _experts(count: int, per_token: int, intermediate: int) -> dict[str, Any]:
    return {"num_experts": count, "num_experts_per_tok": per_token, "moe_intermediate_size": intermediate}


def _latent(q_rank: int, nope: int, value: int) -> dict[str, Any]:
    """Latent attention, with 256 experts, 8 per token, and a shared one."""
    return {
        "q_lora_rank": q_rank,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": 64,
        "v_head_dim": value,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3,
        "quantization_config": _BLOCK_FP8,
    }


_DEEPSEEK = _latent(1536, 128, 128)
_QWEN_VOCABULARY = 151936

# Name -> repository on Hugging Face and the fields of its configuration that determine shapes.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3-8b": ("meta-llama/Meta-Llama-3-8B", _decoder("llama", 4096, 14336, 32, 32, 8, 128256)),
    "llama3-70b": ("meta-llama/Meta-Llama-3-70B", _decoder("llama", 8192, 28672, 80, 64, 8, 128256)),
    "llama3-405b": ("meta-llama/Llama-3.1-405B", _decoder("llama", 16384, 53248, 126, 128, 8, 128256)),
    "mistral-7b": ("mistralai/Mistral-7B-v0.3", _decoder("mistral", 4096, 14336, 32, 32, 8, 32768)),
    "qwen3-0.6b": ("Qwen/Qwen3-0.6B", _decoder("qwen3", 1024, 3072, 28, 16, 8, _QWEN_VOCABULARY, head_dim=128)),
    "qwen3-8b": ("Qwen/Qwen3-8B", _decoder("qwen3", 4096, 12288, 36, 32, 8, _QWEN_VOCABULARY, head_dim=128)),
    "qwen3-32b": ("Qwen/Qwen3-32B", _decoder("qwen3", 5120, 25600, 64, 64, 8, _QWEN_VOCABULARY, head_dim=128)),
    "gemma3-27b": ("google/gemma-3-27b-pt", _decoder("gemma3_text", 5376, 21504, 62, 32, 16, 262208, head_dim=128)),
    "mixtral-8x7b": (
        "mistralai/Mixtral-8x7B-v0.1",
        _decoder("mixtral", 4096, 14336, 32, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
    ),
    "mixtral-8x22b": (
        "mistralai/Mixtral-8x22B-v0.1",
        _decoder("mixtral", 6144, 16384, 56, 48, 8, 32768, num_local_experts=8, num_experts_per_tok=2),
    ),
    "qwen3-30b-a3b": (
        "Qwen/Qwen3-30B-A3B",
        _decoder("qwen3_moe", 2048, 6144, 48, 32, 4, _QWEN_VOCABULARY, head_dim=128, **_experts(128, 8, 768)),
    ),
    "qwen3-235b-a22b": (
        "Qwen/Qwen3-235B-A22B",
        _decoder("qwen3_moe", 4096, 12288, 94, 64, 4, _QWEN_VOCABULARY, head_dim=128, **_experts(128, 8, 1536)),
    ),
    "qwen3-next-80b-a3b": (
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        _decoder(
            *("qwen3_next", 2048, 5120, 48, 16, 2, _QWEN_VOCABULARY),
            head_dim=256,
            full_attention_interval=4,
            shared_expert_intermediate_size=512,
            linear_num_key_heads=16,
            linear_key_head_dim=128,
            linear_num_value_heads=32,
            linear_value_head_dim=128,
            **_experts(512, 10, 512),
        ),
    ),
    "deepseek-v3": ("deepseek-ai/DeepSeek-V3", _decoder("deepseek_v3", 7168, 18432, 61, 128, 128, 129280, **_DEEPSEEK)),
    "deepseek-v3.2": (
        "deepseek-ai/DeepSeek-V3.2",
        _decoder("deepseek_v32", 7168, 18432, 61, 128, 128, 129280, **_DEEPSEEK),
    ),
    "glm-5": ("zai-org/GLM-5-FP8", _decoder("glm_moe_dsa", 6144, 12288, 78, 64, 64, 154880, **_latent(2048, 192, 256))),
    "vit-b16": (
        "google/vit-base-patch16-224",
        {
            "model_type": "vit",
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "image_size": 224,
            "patch_size": 16,
            "num_channels": 3,
        },
    ),
    "clip-vit-l14": (
        "openai/clip-vit-large-patch14",
        {
            "model_type": "clip",
            "projection_dim": 768,
            "text_config": {
                "hidden_size": 768,
                "intermediate_size": 3072,
                "num_hidden_layers": 12,
                "num_attention_heads": 12,
                "max_position_embeddings": 77,
            },
            "vision_config": {
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "image_size": 224,
                "patch_size": 14,
            },
        },
    ),
    "whisper-large-v3": (
        "openai/whisper-large-v3",
        {
            "model_type": "whisper",
            "d_model": 1280,
            "encoder_layers": 32,
            "decoder_layers": 32,
            "encoder_attention_heads": 20,
            "decoder_attention_heads": 20,
            "encoder_ffn_dim": 5120,
            "decoder_ffn_dim": 5120,
            "num_mel_bins": 128,
            "max_source_positions": 1500,
            "vocab_size": 51866,
        },
    ),
}
