#at = loc("model.py":7:3)
#hostile = loc("jit(step)/ejkernel_ops#hostile@v1:0123456789abcdef/mul"(#at))
#steady = loc("jit(step)/ejkernel_ops#steady@v1:fedcba9876543210/add"(#at))
module @jit_step {
  func.func public @main(%arg0: tensor<1024xf32>) -> tensor<1024xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<1024xf32> loc(#hostile)
    %1 = stablehlo.multiply %0, %arg0 : tensor<1024xf32> loc(#steady)
    return %1 : tensor<1024xf32> loc(#at)
  } loc(#at)
} loc(#at)
