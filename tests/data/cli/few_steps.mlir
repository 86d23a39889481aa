module @few_steps_takes_80000 {
  func.func public @main(%x: tensor<1024xf32>) -> tensor<1024xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<1024xf32>
    cond {
      %end = stablehlo.constant dense<400> : tensor<i32>
      %1 = stablehlo.compare LT, %i, %end, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %half = stablehlo.constant dense<5.0e-01> : tensor<1024xf32>
      %ones = stablehlo.constant dense<1.0> : tensor<1024xf32>
      %1 = stablehlo.add %i, %one : tensor<i32>
      %2 = stablehlo.multiply %y, %half : tensor<1024xf32>
      %3 = stablehlo.add %2, %ones : tensor<1024xf32>
      stablehlo.return %1, %3 : tensor<i32>, tensor<1024xf32>
    }
    return %0#1 : tensor<1024xf32>
  }
}
