"""A tiny Stable Diffusion of random weights, made on the spot: for tests and the CPU demo.

Nothing is downloaded and nothing was learnt; the prompt, the seed and the input still decide what
comes out, and every part of the real thing is there: tokens, text model, UNet, autoencoder.
"""

import hashlib
from typing import Any

import diffusers
import torch
import transformers
from tokenizers import pre_tokenizers

# Typed in part only; what comes out of them gets its type where it is taken.
_diffusers: Any = diffusers
_transformers: Any = transformers

_SEED = 7
_TOKENS_MAX = 77
_WIDTH = 32
_SIDE = 256
_BLOCKS = 3
_LATENTS = 4
_PAIRED = 10
"""Channels of the autoencoder: a pair for each latent, and one that is steady."""
_STEADY = 6.0
_LATENT_GAIN = 2.0
"""Colours become latents about as wide as the noise."""
_CERTAIN = -20.0
_DECODER_LOUDNESS = 0.7
_UNET_WIDTH = 16
_UNET_LOUDNESS = 1.2
_ROUGHNESS = 5.0
_CONTRAST = 0.8
_NORM = 4.0
_UNET_STEADY = 10.0
_HEARING = 120.0
_START = "<|startoftext|>"
_END = "<|endoftext|>"


def make() -> Any:  # noqa: ANN401 - a pipeline of the library
    """The pipeline, the same each time; the random numbers of the process stay as they were."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(_SEED)
        tokenizer = _tokenizer()
        return _diffusers.StableDiffusionPipeline(
            vae=_autoencoder(),
            text_encoder=_text_model(tokenizer),
            tokenizer=tokenizer,
            unet=_unet(),
            scheduler=_diffusers.DDIMScheduler(
                beta_start=0.00085,
                beta_end=0.012,
                beta_schedule="scaled_linear",
                clip_sample=False,
                set_alpha_to_one=False,
                steps_offset=1,
                prediction_type="v_prediction",
            ),
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )


def identity(pipe: Any) -> str:  # noqa: ANN401 - a pipeline of the library
    """Digest of the weights: another release of torch may draw others."""
    digest = hashlib.sha256()
    for part in (pipe.vae, pipe.text_encoder, pipe.unet):
        for name, weights in part.state_dict().items():
            digest.update(name.encode())
            digest.update(weights.cpu().reshape(-1).view(torch.uint8).numpy())
    return f"tiny-{digest.hexdigest()[:16]}"


def _tokenizer() -> Any:  # noqa: ANN401 - of the library
    """A token for each byte, inside a word and at its end, and the two that frame a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *(f"{sign}</w>" for sign in alphabet), _START, _END]
    return _transformers.CLIPTokenizer(
        vocab={word: at for at, word in enumerate(words)}, merges=[], model_max_length=_TOKENS_MAX
    )


def _text_model(tokenizer: Any) -> Any:  # noqa: ANN401 - of the library
    return _transformers.CLIPTextModel(
        _transformers.CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=_WIDTH,
            intermediate_size=2 * _WIDTH,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=_TOKENS_MAX,
            projection_dim=_WIDTH,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.eos_token_id,
        )
    ).eval()


def _autoencoder() -> Any:  # noqa: ANN401 - of the library
    """Colours go through as they are, an eighth as large; the way back is a little random."""
    made = _diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * _BLOCKS,
        up_block_types=("UpDecoderBlock2D",) * _BLOCKS,
        block_out_channels=(_PAIRED,) * _BLOCKS,
        layers_per_block=1,
        latent_channels=_LATENTS,
        norm_num_groups=1,
        sample_size=_SIDE,
        scaling_factor=1.0,
    ).eval()
    encoder, decoder = made.encoder, made.decoder
    _quieten(encoder, 0.0)
    _quieten(decoder, _DECODER_LOUDNESS)
    _spread(encoder.conv_in, colours=3)
    for block in encoder.down_blocks:
        for sampler in block.downsamplers or ():
            _each_channel(sampler.conv, torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 0]]) / 4)
    _gather(encoder.conv_out, colours=3, gain=_LATENT_GAIN * _STEADY / 2)
    encoder.conv_out.bias[_LATENTS:] = _CERTAIN
    _each_channel(made.quant_conv, torch.ones(1, 1))
    _each_channel(made.post_quant_conv, torch.ones(1, 1))
    _spread(decoder.conv_in, colours=_LATENTS)
    for block in decoder.up_blocks:
        for sampler in block.upsamplers or ():
            line = torch.tensor([1.0, 2.0, 1.0]) / 4
            _each_channel(sampler.conv, line[:, None] * line[None, :])
    _gather(decoder.conv_out, colours=3, gain=_STEADY / 2 / _LATENT_GAIN)
    return made


def _unet() -> Any:  # noqa: ANN401 - of the library
    """It takes for noise what differs from its neighbours, and says something of its own."""
    made = _diffusers.UNet2DConditionModel(
        sample_size=_SIDE >> (_BLOCKS - 1),
        in_channels=_LATENTS,
        out_channels=_LATENTS,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(_UNET_WIDTH, 2 * _UNET_WIDTH),
        layers_per_block=1,
        cross_attention_dim=_WIDTH,
        attention_head_dim=2,
        norm_num_groups=1,
    ).eval()
    own = torch.zeros(3, 3)
    own[1, 1] = 1
    even = torch.ones(3, 3) / 9
    felt = _ROUGHNESS * (own - even) - _CONTRAST * even
    into = made.conv_in
    for latent in range(_LATENTS):
        for sign, at in ((1, 2 * latent), (-1, 2 * latent + 1)):
            into.weight[at] = 0
            into.weight[at, latent] = sign * felt
            into.bias[at] = 0
    for sign, at in ((1, 2 * _LATENTS), (-1, 2 * _LATENTS + 1)):
        into.weight[at] = 0
        into.bias[at] = sign * _UNET_STEADY
    last = made.up_blocks[-1].resnets[-1]
    shortcut = last.conv_shortcut
    shortcut.weight.mul_(_UNET_LOUDNESS)
    shortcut.bias.zero_()
    first = shortcut.weight.shape[1] - _UNET_WIDTH
    for at in range(2 * _LATENTS + 2):
        shortcut.weight[at] = 0
        shortcut.weight[at, first + at] = 1
    last.conv2.weight[: 2 * _LATENTS + 2] = 0
    last.conv2.bias[: 2 * _LATENTS + 2] = 0
    for name, module in made.named_modules():
        if isinstance(module, torch.nn.Conv2d) and module.kernel_size == (3, 3):
            module.padding_mode = "replicate"
        if name.endswith("attn2"):
            hearing: Any = module
            hearing.to_out[0].weight.mul_(_HEARING)
    out = made.conv_out
    out.weight.mul_(_UNET_LOUDNESS)
    for latent in range(_LATENTS):
        out.weight[latent, : 2 * _LATENTS + 2] = 0
        out.weight[latent, 2 * latent, 1, 1] = _NORM
        out.weight[latent, 2 * latent + 1, 1, 1] = -_NORM
    return made


def _quieten(part: Any, loudness: float) -> None:  # noqa: ANN401 - a module of the library
    """Let the blocks of a part add only so much of their own to what passes through."""
    for module in part.modules():
        name = type(module).__name__
        if name == "ResnetBlock2D":
            module.conv2.weight.mul_(loudness)
            module.conv2.bias.zero_()
        elif name == "Attention":
            module.to_out[0].weight.mul_(loudness)
            module.to_out[0].bias.zero_()
        elif name == "Conv2d" and module.kernel_size == (3, 3) and module.padding == (1, 1):
            module.padding_mode = "replicate"


def _spread(conv: Any, *, colours: int) -> None:  # noqa: ANN401 - a module of the library
    """Each colour into a channel and its negative; the last pair is large and steady.

    A channel and its negative come out of SiLU as what they were, when one is taken from the other;
    the steady pair keeps the norm of a layer from depending on the picture.
    """
    conv.weight.zero_()
    conv.bias.zero_()
    for colour in range(colours):
        conv.weight[2 * colour, colour, 1, 1] = 1
        conv.weight[2 * colour + 1, colour, 1, 1] = -1
    conv.bias[_PAIRED - 2], conv.bias[_PAIRED - 1] = _STEADY, -_STEADY


def _gather(conv: Any, *, colours: int, gain: float) -> None:  # noqa: ANN401 - of the library
    """The colours again from their pairs."""
    conv.weight.zero_()
    conv.bias.zero_()
    for colour in range(colours):
        conv.weight[colour, 2 * colour, 1, 1] = gain
        conv.weight[colour, 2 * colour + 1, 1, 1] = -gain


def _each_channel(conv: Any, kernel: torch.Tensor) -> None:  # noqa: ANN401 - of the library
    conv.weight.zero_()
    conv.bias.zero_()
    for channel in range(conv.weight.shape[0]):
        conv.weight[channel, channel] = kernel
