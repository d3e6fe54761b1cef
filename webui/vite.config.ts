import { defineConfig } from "vite";

// Everything is relative, so that a path prefix of the management port needs no other build.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/warren/management/ui",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
    reportCompressedSize: true,
  },
});
