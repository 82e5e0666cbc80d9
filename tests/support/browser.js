// What a test asks of a page. Each function is waited for, and what it returns is JSON.
(() => {
  const once = (target, name) => new Promise((resolve, reject) => {
    target.addEventListener(name, resolve, { once: true });
    target.addEventListener("error", () => {
      const told = target.error ? `${target.error.code} ${target.error.message}` : "no picture";
      reject(new Error(`${name}: ${told}`));
    }, { once: true });
  });

  const base64 = (bytes) => btoa(String.fromCharCode(...bytes));

  // Columns and rows of what is shown: the mean of the colours there, and how much of it is there.
  const FINE = 8;
  const gridOf = (shown, side) => {
    const fine = side * FINE;
    const canvas = new OffscreenCanvas(fine, fine);
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    pen.imageSmoothingQuality = "high";
    pen.drawImage(shown, 0, 0, fine, fine);
    const { data } = pen.getImageData(0, 0, fine, fine);
    const grid = [];
    const alpha = [];
    for (let row = 0; row < side; row += 1) {
      for (let column = 0; column < side; column += 1) {
        const sum = [0, 0, 0, 0];
        for (let y = row * FINE; y < (row + 1) * FINE; y += 1) {
          for (let x = column * FINE; x < (column + 1) * FINE; x += 1) {
            const at = (y * fine + x) * 4;
            const there = data[at + 3];
            for (let one = 0; one < 3; one += 1) sum[one] += (data[at + one] * there) / 255;
            sum[3] += there;
          }
        }
        const mean = sum.map((one) => Math.round(one / (FINE * FINE)));
        grid.push(...mean.slice(0, 3));
        alpha.push(mean[3]);
      }
    }
    return { grid: base64(grid), alpha: base64(alpha) };
  };

  const decoded = (video) => video.getVideoPlaybackQuality().totalVideoFrames;

  const opened = (address) => {
    const video = document.createElement("video");
    video.crossOrigin = "anonymous";
    video.preload = "auto";
    document.body.replaceChildren(video);
    video.src = address;
    return video;
  };

  // Until it is at least so far on; the browser tells of each picture that it has shown.
  const runsTo = (video, seconds) => new Promise((resolve, reject) => {
    video.addEventListener("error", () => reject(new Error(video.error.message)), { once: true });
    const look = () => {
      if (video.currentTime >= seconds || video.ended) resolve();
      else video.requestVideoFrameCallback(look);
    };
    look();
  });

  const goTo = async (video, seconds) => {
    const there = once(video, "seeked");
    video.currentTime = seconds;
    await there;
    if (video.readyState < 2) await once(video, "canplay");
  };

  window.playFirst = async (address) => {
    const video = opened(address);
    await video.play();
    await runsTo(video, 0.1);
    return video.currentTime;
  };

  window.watchFilm = async (address, parts, side) => {
    const video = opened(address);
    await once(video, "loadeddata");
    const frames = [decoded(video)];
    await video.play();
    await runsTo(video, Math.min(1, video.duration / 3));
    video.pause();
    frames.push(decoded(video));
    const places = [];
    for (const part of parts) {
      const seconds = part * video.duration;
      await goTo(video, seconds);
      const { grid } = gridOf(video, side);
      places.push({ seconds, ready_state: video.readyState, grid });
    }
    const end = once(video, "ended");
    await goTo(video, Math.max(0, video.duration - 1));
    await video.play();
    await end;
    frames.push(decoded(video));
    const found = {
      width: video.videoWidth,
      height: video.videoHeight,
      seconds: video.duration,
      places,
      frames,
      sound_bytes: video.webkitAudioDecodedByteCount,
      ended: video.ended,
    };
    video.removeAttribute("src");
    video.load();
    return found;
  };

  window.showPicture = async (address, side) => {
    const picture = new Image();
    picture.crossOrigin = "anonymous";
    picture.src = address;
    document.body.replaceChildren(picture);
    await picture.decode();
    return {
      width: picture.naturalWidth,
      height: picture.naturalHeight,
      ...gridOf(picture, side),
    };
  };

  window.followLink = (address) => {
    const link = document.createElement("a");
    link.href = address;
    document.body.replaceChildren(link);
    link.click();
  };

  // An EventSource comes back by itself with the last id, until it is answered 204.
  window.hearStream = (path, names) => new Promise((resolve) => {
    const source = new EventSource(path);
    const events = [];
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) resolve({ events });
    };
    for (const name of names) {
      source.addEventListener(name, (event) => {
        events.push({ id: event.lastEventId, name, data: JSON.parse(event.data) });
      });
    }
  });
})();
