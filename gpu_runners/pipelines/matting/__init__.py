"""The scene `matting`: subjects cut out of pictures, animations and films.

```
stills -> saliency -> edges -> cutting -> canvas -> shelf      pictures
edges: rests on closed_form and fringes
moving: the same for each frame of an animation or a film
scene: the task as a whole; manifest, sheet: what is told of it
```
"""

from gpu_runners.pipelines.matting.scene import Matting

__all__ = ["Matting"]
