import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

// One file, so that the binary serves one answer and nothing is loaded from elsewhere.
export default defineConfig({
  plugins: [viteSingleFile()],
  build: { target: "es2022", reportCompressedSize: true },
});
